"""What an engine says of jobs, and what the spool does, where the two differ."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

from sureline.sites import at_site
from sureline.sites.port import SiteWork
from sureline.sites.spooled import SpooledSite


class ForgetfulEngine(SpooledSite):
    """It keeps all jobs waiting, and does not hear that one is to be taken back."""

    name = "forgetful"

    def _hand_over(self, spool, work):
        pass

    def _words(self, jobs):
        return dict.fromkeys(jobs, "waits")

    def _drop(self, jobs):
        pass


def test_a_job_that_was_cancelled_before_it_began_is_over_whatever_its_engine_says(tmp_path: Path):
    site = ForgetfulEngine(tmp_path / "spool")
    done = tmp_path / "done"
    first, second = site.submit(SiteWork(tag="t", argv=("touch", str(done)), count=2))
    assert {status.word for status in site.look([first, second]).values()} == {"queued"}
    site.cancel([first])
    found = site.look([first, second])
    assert (found[first].word, found[second].word) == ("cancelled", "queued")
    assert found[first].is_over
    program = [sys.executable, at_site.__file__, "job", str(tmp_path / "spool"), "t"]
    run = partial(subprocess.run, check=False, start_new_session=True)
    run([*program, "0"])  # its engine begins with it all the same
    assert site.look([first])[first].word == "cancelled"
    assert not done.exists()
    run([*program, "1"])
    assert done.exists()
