"""What the worker reads from the environment, and what `check` says of it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from temporalio.common import WorkerDeploymentVersion
from temporalio.converter import DataConverter

from classifier.errors import ConfigurationError
from classifier.temporal.codec import EncryptionCodec
from classifier.temporal.telemetry import Metrics
from tests.processes import environment, run
from worker import Settings, converter

KEY = base64.b64encode(b"k" * 32).decode()


def settings(tmp_path: Path, **environ: str) -> Settings:
    return Settings.from_environ({"CLASSIFIER_HOME": str(tmp_path), **environ})


def test_nothing_is_encrypted_measured_or_versioned_unless_it_is_set(tmp_path: Path) -> None:
    plain = settings(tmp_path, CLASSIFIER_CODEC_KEYS="", CLASSIFIER_METRICS_OTLP="", CLASSIFIER_BUILD_ID="")
    assert (plain.codec_keys, plain.metrics, plain.version, plain.rate) == (None, None, None, None)
    assert converter(plain) is DataConverter.default


def test_everything_that_is_set_is_read_and_no_key_is_shown(tmp_path: Path) -> None:
    given = settings(
        tmp_path,
        CLASSIFIER_CODEC_KEYS=f"b:{KEY},a:{KEY}",
        CLASSIFIER_METRICS_PROMETHEUS="127.0.0.1:9464",
        CLASSIFIER_DEPLOYMENT="triage",
        CLASSIFIER_BUILD_ID="7",
    )
    assert given.codec_keys is not None
    assert given.codec_keys.ids == ("b", "a")
    assert isinstance(converter(given).payload_codec, EncryptionCodec)
    assert given.metrics == Metrics(prometheus="127.0.0.1:9464")
    assert given.version == WorkerDeploymentVersion("triage", "7")
    assert KEY not in repr(given)


@pytest.mark.parametrize(
    ("environ", "complaint"),
    [
        ({"CLASSIFIER_CODEC_KEYS": "a:short"}, "CLASSIFIER_CODEC_KEYS"),
        ({"CLASSIFIER_CODEC_PLAINTEXT": "yes"}, "CLASSIFIER_CODEC_PLAINTEXT is 'refuse' or 'accept'"),
        ({"CLASSIFIER_DEPLOYMENT": "triage"}, "go together"),
        ({"CLASSIFIER_BUILD_ID": "7"}, "go together"),
        (
            {"CLASSIFIER_METRICS_PROMETHEUS": "127.0.0.1:1", "CLASSIFIER_METRICS_OTLP": "http://127.0.0.1:2"},
            "not to both",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(
    tmp_path: Path, environ: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        settings(tmp_path, **environ)


@pytest.fixture
async def checked(tmp_path: Path) -> dict[str, Any]:
    environ = environment(
        tmp_path,
        CLASSIFIER_APP="tests.apps.watched:app",
        CLASSIFIER_CODEC_KEYS=f"new:{KEY},old:{KEY}",
        CLASSIFIER_CODEC_PLAINTEXT="accept",
        CLASSIFIER_METRICS_PROMETHEUS="127.0.0.1:9464",
        CLASSIFIER_DEPLOYMENT="triage",
        CLASSIFIER_BUILD_ID="7",
    )
    finished = await run("check", "--json", environ=environ)
    assert finished.code == 0, finished.errors
    assert KEY not in finished.output + finished.errors
    return {finding["what"]: finding for finding in finished.json["findings"]}


async def test_check_lists_every_processor_what_it_guards_and_what_is_missing_for_streams(
    checked: dict[str, Any],
) -> None:
    front, flow, drip, undeclared = (
        checked[f"processor {name}"] for name in ("front", "flow", "drip", "any")
    )
    assert front["value"] == "guards input; classifier safety on scripted; strict"
    assert flow["value"].startswith("guards output, stream;")
    assert "holds back 40 characters; coalesces 200 characters or 0.5 s" in flow["value"]
    assert "lets content through when the classifier fails; monitors only" in drip["value"]
    assert undeclared["value"].startswith("guards any phase it is called in")
    warned = {name for name, finding in checked.items() if finding["warning"]}
    assert warned == {"processor drip", "encryption"}
    assert "without hold_back and coalesce" in drip["warning"]
    assert "on, with key new; decrypts old too" in checked["encryption"]["value"]
    assert checked["metrics"]["value"] == "Prometheus at 127.0.0.1:9464"
    assert checked["version"]["value"] == "triage.7"


async def test_an_app_without_a_required_guard_is_not_run_and_check_says_why(tmp_path: Path) -> None:
    environ = environment(tmp_path, CLASSIFIER_APP="tests.apps.watched:unguarded")
    finished = await run("check", environ=environ)
    assert finished.code == 1
    assert "require_guard asks for a guard of input" in finished.output.replace("\n", " ")
    assert "encryption" in finished.output


async def test_there_is_nothing_to_promote_without_a_version(tmp_path: Path) -> None:
    finished = await run("worker", "--promote", environ=environment(tmp_path))
    assert finished.code == 1
    assert "set CLASSIFIER_DEPLOYMENT and CLASSIFIER_BUILD_ID" in finished.sentence
