"""What Slurm's commands say, in our words: recorded of 22.05, and newer forms as documented.

Lines of squeue were recorded on a slurmctld 22.05.8 that was brought into that state, and so were
COMPLETED, FAILED, CANCELLED, TIMEOUT, OUT_OF_MEMORY and DEADLINE of sacct; its other lines have the
form that its manual gives, from 20.11 to 24.11. `test_slurm_books.py` asks real ones.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from sureline.compose.pilots.starting import Pilots
from sureline.sites import slurm as module
from sureline.sites.book import PilotBatch
from sureline.sites.order import SiteChoice
from sureline.sites.port import JobId, JobStatus, SiteError, SiteWork, Word
from sureline.sites.slurm import Completed, SlurmSite
from sureline.sites.slurm_words import STATES, failure, translated

DOWN = Completed(
    1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
)
UNKNOWN = Completed(1, "", "slurm_load_jobs error: Invalid job id specified\n")
NO_ACCOUNTING = Completed(1, "", "Slurm accounting storage is disabled\n")


class RecordedSlurm:
    """Answers with what was recorded."""

    def __init__(self, squeue: str | Completed = "", sacct: str | Completed = NO_ACCOUNTING):
        self.answers = {"squeue": squeue, "sacct": sacct, "sbatch": "7\n", "scancel": ""}
        self.asked: list[list[str]] = []

    def __call__(self, argv: Sequence[str], text: str) -> Completed:
        self.asked.append(list(argv))
        answer = self.answers[argv[0]]
        return answer if isinstance(answer, Completed) else Completed(0, answer, "")


def submitted(tmp_path: Path, slurm: RecordedSlurm, count: int = 2, **more: str) -> SlurmSite:
    site = SlurmSite(tmp_path / "spool", command=slurm, **more)
    site.submit(SiteWork(tag="t", argv=("true",), count=count))
    return site


def looked(tmp_path: Path, slurm: RecordedSlurm, job: str = "7_0") -> JobStatus | None:
    return submitted(tmp_path, slurm).look([JobId(job)]).get(JobId(job))


SQUEUE: dict[str, tuple[Word, str]] = {
    "7|0|PENDING|1794965015|N/A|N/A||sureline.t|None": ("queued", ""),
    "7|0|PENDING|1794965015|1794968634|NONE||sureline.t|BeginTime": ("queued", "BeginTime"),
    "7|0|PENDING|1794965069|1826501069|NONE||sureline.t|Resources": ("queued", "Resources"),
    "7|0|PENDING|1794965028|N/A|N/A||sureline.t|JobHeldUser": ("held", "JobHeldUser"),
    "7|0|PENDING|1794965031|N/A|N/A||sureline.t|PartitionTimeLimit": (
        "unfit",
        "PartitionTimeLimit",
    ),
    "7|0|PENDING|1794965031|N/A|N/A||sureline.t|PartitionConfig": ("unfit", "PartitionConfig"),
    "7|0|RUNNING|1794965015|1794965016|1826501016|n0|sureline.t|None": ("running", ""),
    "7|0|SUSPENDED|1794965036|1794965036|1826501036|n0|sureline.t|None": ("suspended", ""),
    "7|0|COMPLETING|1794965038|1794965041|NONE|n1|sureline.t|None": ("ending", ""),
    "7|0|COMPLETING|1794965046|1794965050|NONE|n0|sureline.t|job requeued in held state": (
        "ending",
        "job requeued in held state",
    ),
    "7|0|COMPLETED|1794965015|1794965016|1794965017|n0|sureline.t|None": ("ended", ""),
    "7|0|FAILED|1794965017|1794965018|1794965018|n0|sureline.t|NonZeroExitCode": (
        "failed",
        module.NEVER_BEGAN,
    ),
    "7|0|CANCELLED|1794965020|1794965022|1794965022|n0|sureline.t|None": ("cancelled", ""),
    "7|N/A|CANCELLED|1794965028|1794965030|1794965030||sureline.t|None": ("cancelled", ""),
    "7|0|CANCELLED|1794965028|1794965030|1794965030||sureline.t|JobHeldUser": (
        "cancelled",
        "JobHeldUser",
    ),
    "7|0|FAILED|1794965030|1794965032|1794965036|n0|sureline.t|JobLaunchFailure": (
        "failed",
        module.NEVER_BEGAN,
    ),
    "7|0|PREEMPTED|1794965056|1794965056|1794965058|n1|sureline.t|None": (
        "preempted",
        "others were more important",
    ),
    "7|0|TIMEOUT|1794965056|1794965056|1794965116|n1|sureline.t|TimeLimit": (
        "timeout",
        "its time was over",
    ),
    "7|0|DEADLINE|1794965056|1794965068|1794965068||sureline.t|DeadLine": (
        "deadline",
        "it could not have ended by its deadline",
    ),
    "7|0|NODE_FAIL|1794965056|1794965056|1794965116|n1|sureline.t|NodeDown": (
        "node-failed",
        "its machine failed",
    ),
    "7|0|OUT_OF_MEMORY|1794965056|1794965056|1794965116|n1|sureline.t|OutOfMemory": (
        "out-of-memory",
        "it used more memory than it was given",
    ),
}


@pytest.mark.parametrize("line", SQUEUE)
def test_squeue(tmp_path: Path, line: str):
    status = looked(tmp_path, RecordedSlurm(f"{line}\n"))
    assert status is not None
    assert (status.word, status.reason) == SQUEUE[line]
    on_a_machine = line.split("|")[6] != ""
    assert (status.started_at is not None) == on_a_machine, "else nobody has begun anything"


SACCT: dict[str, tuple[Word, int | None, str]] = {
    "COMPLETED|0:0": ("ended", 0, ""),
    "FAILED|3:0": ("failed", 3, "work"),
    "FAILED|0:9": ("failed", -9, "work"),
    "TIMEOUT|0:0": ("timeout", 0, "work"),
    "OUT_OF_MEMORY|0:125": ("out-of-memory", -125, "work"),
    "OUT_OF_ME+|0:125": ("out-of-memory", -125, "work"),
    "CANCELLED by 1000|0:15": ("cancelled", -15, "user"),
    "CANCELLED+|0:0": ("cancelled", 0, "user"),
    "PREEMPTED|0:0": ("preempted", 0, "engine"),
    "NODE_FAIL|1:0": ("node-failed", 1, "engine"),
    "BOOT_FAIL|0:0": ("node-failed", 0, "engine"),
    "DEADLINE|0:0": ("deadline", 0, "engine"),
    "REVOKED|0:0": ("cancelled", 0, "user"),
    "LAUNCH_FAILED|0:0": ("node-failed", 0, "engine"),
}


@pytest.mark.parametrize("said", SACCT)
def test_sacct(tmp_path: Path, said: str):
    """Of a job that slurmctld has forgotten."""
    line = f"7_0|{said}|1794965056|1794965056|1794965116|n1\n"
    status = looked(tmp_path, RecordedSlurm(UNKNOWN, line))
    assert status is not None
    assert (status.word, status.exit_code, status.blame) == SACCT[said]


def test_sacct_names_those_that_were_ended_together_once(tmp_path: Path):
    """Recorded of 22.05: an array whose deadline could not be met."""
    said = "7_[0-1]|DEADLINE|1:0|1794965056|None|1794965068|None assigned\n"
    slurm = RecordedSlurm(UNKNOWN, said)
    found = submitted(tmp_path, slurm).look([JobId("7_0"), JobId("7_1")])
    assert slurm.asked[-1][-1] == "7", "asked for 7_0, sacct says nothing"
    assert [one.word for one in found.values()] == ["deadline"] * 2
    assert {one.started_at for one in found.values()} == {None}


def test_every_state_of_the_manuals_has_a_word():
    """Those of squeue(1) 24.11, and what earlier versions had besides."""
    manual = [
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "CONFIGURING",
        "COMPLETING",
        "DEADLINE",
        "EXPEDITING",
        "FAILED",
        "LAUNCH_FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PENDING",
        "POWER_UP_NODE",
        "PREEMPTED",
        "RECONFIG_FAIL",
        "RESIZING",
        "RESV_DEL_HOLD",
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "REVOKED",
        "RUNNING",
        "SIGNALING",
        "SPECIAL_EXIT",
        "STAGE_OUT",
        "STOPPED",
        "SUSPENDED",
        "TIMEOUT",
        "UPDATE_DB",
    ]
    assert set(manual) == STATES.keys()
    for state in manual:
        assert translated(state) is not None
    assert translated("SOMETHING_NEW") is None and translated("") is None
    assert translated("RE+") is None, "several begin so"


def test_what_is_not_understood_is_not_known(tmp_path: Path):
    slurm = RecordedSlurm("7|0|SOMETHING_NEW|1|1|1|n0|sureline.t|None\nnonsense\n")
    assert looked(tmp_path, slurm) is None


def test_a_requeued_job_has_its_own_word(tmp_path: Path):
    slurm = RecordedSlurm("7|0|PENDING|1794965044|1794965165|NONE||sureline.t|BeginTime\n")
    site = submitted(tmp_path, slurm)
    (tmp_path / "spool/t/state.0").write_text('{"word": "running", "starts": 1}')
    status = site.look([JobId("7_0")])[JobId("7_0")]
    assert (status.word, status.starts, status.is_over) == ("requeued", 1, False)


def test_a_job_that_is_in_no_list_is_not_lost_for_that(tmp_path: Path, monkeypatch):
    """Until slurmctld has not known it for a minute, and it has been silent for three."""
    slurm = RecordedSlurm(UNKNOWN)
    site = submitted(tmp_path, slurm)
    jobs = [JobId("7_0"), JobId("7_1")]
    state = tmp_path / "spool/t/state.1"
    state.write_text('{"word": "running", "starts": 1}')
    assert site.look(jobs).keys() == {jobs[1]}, "of one nothing is known; one shows signs of life"
    now = time.monotonic()
    monkeypatch.setattr(module.time, "monotonic", lambda: now + module.UNHEARD_S + 1)
    assert site.look(jobs)[jobs[1]].word == "running"
    for silent in (state, tmp_path / "spool/t/submitted"):
        os.utime(silent, (0, time.time() - module.SIGN_OF_LIFE_S - 5))
    found = site.look(jobs)
    assert {status.word for status in found.values()} == {"lost"} and len(found) == 2
    slurm.answers["squeue"] = "7|1|RUNNING|1|1|1|n0|sureline.t|None\n"
    assert site.look(jobs)[jobs[1]].word == "running", "it was there all the time"


def test_a_batch_that_slurm_has_lost_is_struck_out_in_the_end(tmp_path: Path, monkeypatch):
    """slurmctld was restarted without it: nobody will ever say that it is over."""
    slurm = RecordedSlurm(UNKNOWN)
    monkeypatch.setattr(module, "run_command", slurm)
    pilots = Pilots(tmp_path)
    batch = PilotBatch("t", "lab", SiteChoice("slurm"), asked_at=0.0)
    batch = pilots.book.submit(batch, SiteWork(tag="t", argv=("true",)))
    spool = tmp_path / "pilots" / "spool" / "t"
    (spool / "state.0").write_text('{"word": "running", "starts": 1}')
    assert not pilots.settle(batch)
    os.utime(spool / "state.0", (0, time.time() - module.SIGN_OF_LIFE_S - 5))
    now = time.monotonic()
    monkeypatch.setattr(module.time, "monotonic", lambda: now + module.UNHEARD_S + 1)
    assert pilots.settle(batch) and not pilots.book.batches()


def test_its_own_word_counts_where_slurm_has_forgotten(tmp_path: Path):
    site = submitted(tmp_path, RecordedSlurm(UNKNOWN))
    (tmp_path / "spool/t/state.0").write_text(
        '{"word": "failed", "starts": 1, "exit_code": 4, "ended_at": 9.0}'
    )
    status = site.look([JobId("7_0")])[JobId("7_0")]
    assert (status.word, status.exit_code) == ("failed", 4)


def test_a_controller_that_is_down_says_nothing_of_jobs(tmp_path: Path):
    slurm = RecordedSlurm()
    site = submitted(tmp_path, slurm)
    slurm.answers["squeue"] = DOWN
    with pytest.raises(SiteError, match="Unable to contact") as told:
        site.look([JobId("7_0")])
    assert told.value.again
    slurm.answers["squeue"] = "7|0|RUNNING|1|1|1|n0|sureline.t|None\n"
    assert site.look([JobId("7_0")])[JobId("7_0")].word == "running"


def test_clusters(tmp_path: Path):
    slurm = RecordedSlurm()
    slurm.answers["sbatch"] = "7;east\n"
    site = submitted(tmp_path, slurm, clusters="east,west")
    assert "--clusters=east,west" in slurm.asked[-1]
    slurm.answers["squeue"] = (
        "CLUSTER: east\n"
        "ARRAY_JOB_ID|ARRAY_TASK_ID|STATE|SUBMIT_TIME|START_TIME|END_TIME|NODELIST|NAME|REASON\n"
        "7|0|RUNNING|1|1|1|n0|sureline.t|None\n"
        "CLUSTER: west\n7|0|PENDING|1|N/A|N/A||sureline.other|None\n"
    )
    found = site.find()
    assert "-h" not in slurm.asked[-1], "with it, squeue leaves out whose lines these are"
    assert found == {"7_0@east": "t", "7_1@east": "t", "7_0@west": "other"}
    assert site.look([JobId("7_0@east")])[JobId("7_0@east")].word == "running"
    assert "--clusters=east" in slurm.asked[-1] and "7" in slurm.asked[-1]
    site.cancel([JobId("7_0@east"), JobId("7_0@west")])
    assert [argv[1:] for argv in slurm.asked[-2:]] == [
        ["--clusters=east", "7_0"],
        ["--clusters=west", "7_0"],
    ]


SBATCH = {
    "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed: "
    "Invalid partition name specified\n": (False, False),
    "sbatch: error: Memory specification can not be satisfied\nsbatch: error: Batch job submission "
    "failed: Requested node configuration is not available\n": (False, False),
    "sbatch: error: CPU count per node can not be satisfied\nsbatch: error: Batch job submission "
    "failed: Requested node configuration is not available\n": (False, False),
    "sbatch: error: Batch job submission failed: Invalid feature specification\n": (False, False),
    "sbatch: unrecognized option '--nonsense'\nTry \"sbatch --help\" for more information\n": (
        False,
        False,
    ),
    "sbatch: error: Batch job submission failed: Invalid account or account/partition combination "
    "specified\n": (False, False),
    "sbatch: error: Batch job submission failed: Invalid qos specification\n": (False, False),
    "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect "
    "failure)\n": (True, False),
    "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n": (
        True,
        True,
    ),
    "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job "
    "violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n": (
        True,
        False,
    ),
    "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n": (True, False),
    "": (True, False),
}


@pytest.mark.parametrize("said", SBATCH)
def test_what_sbatch_complains_of(said: str):
    error = failure("sbatch", said)
    assert (error.again, error.unsure) == SBATCH[said], str(error)
    assert "\n" not in str(error) and len(str(error)) > 10
