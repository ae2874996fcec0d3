"""Processes of a machine that is reached by ssh, as a site: a real sshd on the loopback."""

from __future__ import annotations

import pytest
from sshd_lab import SshdLab

from sureline.sites.port import SiteError, SiteWork
from sureline.sites.ssh import SshSite
from sureline.testing import SiteConformance
from sureline.testing.sites import ended

ALONE = ("-o", "ControlPath=none")
"""Without a connection that an earlier call has left."""


class TestSsh(SiteConformance):
    @pytest.fixture(autouse=True)
    def served(self, sshd: SshdLab) -> None:
        self.sshd = sshd

    def make(self) -> SshSite:
        return SshSite("lab", spool="~/its spool", options=self.sshd.options)


def test_a_host_that_is_down_may_come_back(sshd: SshdLab):
    site = SshSite("lab", options=(*sshd.options, *ALONE))
    sshd.stop()
    try:
        with pytest.raises(SiteError) as told:
            site.find()
        assert told.value.again and "lab" in str(told.value)
    finally:
        sshd.start()
    jobs = site.submit(SiteWork(tag="back", argv=("true",)))
    assert ended(site, jobs)[jobs[0]].word == "ended"


def test_a_key_that_is_refused_stays_so(sshd: SshdLab):
    site = SshSite("lab", options=(*sshd.options, *ALONE, "-o", "PubkeyAuthentication=no"))
    with pytest.raises(SiteError, match=r"[Pp]ermission denied") as told:
        site.find()
    assert not told.value.again


def test_no_python_there(sshd: SshdLab):
    site = SshSite("lab", python="python-none", options=sshd.options)
    with pytest.raises(SiteError, match="there is no python-none") as told:
        site.find()
    assert not told.value.again


def test_what_looks_like_an_option_is_no_host():
    with pytest.raises(SiteError, match="not the name of a host"):
        SshSite("-oProxyCommand=true")
