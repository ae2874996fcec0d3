"""The user's catalogs: what she has written down once, for all of her runs.

- `entries`: her sites, and how programs are called there (`sites.yaml`, `transformations.yaml`);
- `replicas`: where files are, and what made them.

They lie in her home (`world.identity.home`). Nothing here reaches a site: that is `sites`. Imports
`workflow` and `world`.
"""
