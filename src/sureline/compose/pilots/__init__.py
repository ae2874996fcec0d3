"""Pilots of this home: started through an engine, found again after a crash, ended.

`starting` hands them to a site, with what they need to join a grid, and ends them; `base` is the
peer of this home by which they find it; `bringing` takes Sureline to machines that lack it;
`factory` decides how many more to ask for, and when to stop asking.
"""
