"""Encryption: what Temporal stores holds no content, keys rotate, and a missing key is loud."""

from __future__ import annotations

import asyncio
import base64
import logging
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowHistory,
)
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverter,
    DefaultFailureConverterWithEncodedAttributes,
    DefaultPayloadConverter,
)
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer, Worker

from classifier.audit.memory import MemoryStore
from classifier.errors import ConfigurationError
from classifier.temporal.codec import (
    ENCODING,
    KEY_ID,
    CodecKeyMissing,
    CodecKeys,
    EncryptionCodec,
    PayloadTampered,
    PlaintextRefused,
    encrypted,
)
from classifier.temporal.plugin import ClassifierPlugin
from tests.classifier.temporal.letters import always, app, start, until
from tests.classifier.temporal.marked import MARK, Marked, Note, carry, drop
from tests.classifier.temporal.project.worker import WORKFLOWS, worker
from tests.classifier.temporal.project.workflows import SortLetter

OLD = CodecKeys({"old": b"o" * 32})
NEW = CodecKeys({"new": b"n" * 32})
BOTH = CodecKeys({**NEW.keys, **OLD.keys})

PAYLOADS = st.builds(
    Payload,
    metadata=st.dictionaries(st.text(max_size=20), st.binary(max_size=40), max_size=4),
    data=st.binary(max_size=2_000),
)


def one(keys: CodecKeys, payload: Payload) -> Payload:
    (encoded,) = asyncio.run(EncryptionCodec(keys).encode([payload]))
    return encoded


def back(keys: CodecKeys, payload: Payload) -> Payload:
    (decoded,) = asyncio.run(EncryptionCodec(keys).decode([payload]))
    return decoded


@settings(max_examples=60, deadline=None)
@given(st.lists(PAYLOADS, max_size=4))
def test_every_payload_comes_back_as_it_was_and_none_is_like_it_meanwhile(payloads: list[Payload]) -> None:
    codec = EncryptionCodec(BOTH)
    sealed = asyncio.run(codec.encode(payloads))
    assert asyncio.run(codec.decode(sealed)) == payloads
    assert all(payload.metadata["encoding"] == ENCODING for payload in sealed)
    assert [dict(each.metadata)[KEY_ID] for each in sealed] == [b"new"] * len(payloads)
    assert len({each.data for each in sealed}) == len(payloads)


@settings(max_examples=60, deadline=None)
@given(PAYLOADS, st.data())
def test_no_changed_byte_goes_unnoticed(payload: Payload, data: st.DataObject) -> None:
    sealed = one(NEW, payload)
    place = data.draw(st.integers(0, len(sealed.data) - 1))
    changed = bytearray(sealed.data)
    changed[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(PayloadTampered, match="'new'"):
        back(NEW, Payload(metadata=sealed.metadata, data=bytes(changed)))


@pytest.mark.parametrize("length", [0, 5, 12, 27])
def test_a_cut_payload_is_an_error_too(length: int) -> None:
    sealed = one(NEW, Payload(data=b"text"))
    with pytest.raises(PayloadTampered):
        back(NEW, Payload(metadata=sealed.metadata, data=sealed.data[:length]))


def test_the_key_id_is_bound_to_the_payload() -> None:
    same = CodecKeys({"a": b"k" * 32, "b": b"k" * 32})
    sealed = one(same, Payload(data=b"text"))
    sealed.metadata[KEY_ID] = b"b"
    with pytest.raises(PayloadTampered):
        back(same, sealed)


def test_after_a_rotation_the_first_key_encrypts_and_the_old_one_still_decrypts() -> None:
    payload = Payload(data=b"text")
    assert back(BOTH, one(OLD, payload)) == payload
    assert one(BOTH, payload).metadata[KEY_ID] == b"new"


@pytest.mark.parametrize("shown", ["old", "no such\nid", "\xff"])
def test_a_missing_key_is_an_error_that_names_it(shown: str) -> None:
    sealed = one(OLD, Payload(data=b"text"))
    sealed.metadata[KEY_ID] = shown.encode("latin-1")
    with pytest.raises(CodecKeyMissing) as missing:
        back(NEW, sealed)
    assert ("'old'" if shown == "old" else "(malformed)") in str(missing.value)
    assert "known keys: new" in str(missing.value)


def test_plain_text_is_refused_unless_it_is_asked_for() -> None:
    plain = Payload(metadata={"encoding": b"json/plain"}, data=b'"text"')
    with pytest.raises(PlaintextRefused):
        back(NEW, plain)
    assert asyncio.run(EncryptionCodec(NEW, plaintext="accept").decode([plain])) == [plain]


def encoded(length: int) -> str:
    return base64.b64encode(b"x" * length).decode()


def test_keys_are_read_in_order_and_never_shown() -> None:
    keys = CodecKeys.parse(f"2026-11:{encoded(32)}, 2026-05:{encoded(32)}")
    assert keys.ids == ("2026-11", "2026-05")
    assert repr(keys) == "CodecKeys(2026-11, 2026-05)"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "key 1 is not of the form"),
        (encoded(32), "key 1 is not of the form"),
        (f"a:{encoded(16)}", "'a' has 16 bytes; it needs 32"),
        (f"a:{encoded(32)},a:{encoded(32)}", "1 and 2 share an id"),
        ("a:secret!", "key 1 is not base64"),
        (f"a b:{encoded(32)}", "the id of a codec key"),
        (f"a:{encoded(32)},", "key 2 is not of the form"),
    ],
)
def test_malformed_keys_are_refused_without_showing_them(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as refused:
        CodecKeys.parse(text)
    assert encoded(16)[:8] not in str(refused.value)
    assert "secret" not in str(refused.value)


class OwnPayloads(DefaultPayloadConverter):
    """A project's own."""


class OwnFailures(DefaultFailureConverter):
    """A project's own, which leaves messages readable."""


class OwnEncodedFailures(DefaultFailureConverterWithEncodedAttributes):
    """A project's own, which does not."""


def test_a_converter_of_ones_own_keeps_its_ways() -> None:
    own = DataConverter(payload_converter_class=OwnPayloads, failure_converter_class=OwnEncodedFailures)
    converter = encrypted(own, keys=NEW)
    assert converter.payload_converter_class is OwnPayloads
    assert converter.failure_converter_class is OwnEncodedFailures
    assert own.payload_codec is None


def test_a_converter_that_cannot_be_encrypted_whole_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="derive OwnFailures from"):
        encrypted(DataConverter(failure_converter_class=OwnFailures), keys=NEW)
    with pytest.raises(ConfigurationError, match="has a codec already"):
        encrypted(encrypted(keys=NEW), keys=NEW)


async def histories(client: Client, workflow_id: str, run_id: str | None) -> list[WorkflowHistory]:
    """The histories of a run and of those that it continued as."""
    found: list[WorkflowHistory] = []
    while run_id:
        found.append(await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history())
        run_id = (
            found[-1].events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
        )
    return found


async def held(client: Client, handle: WorkflowHandle[Any, Any]) -> bytes:
    """All that Temporal holds of a workflow, as it holds it: histories, descriptions, memos."""
    described = (await handle.describe()).raw_description.SerializeToString()
    found = await histories(client, handle.id, handle.first_execution_run_id)
    events = [event.SerializeToString() for history in found for event in history.events]
    return described + b"".join(events)


async def marked(client: Client, queue: str) -> WorkflowHandle[Any, Any]:
    """The marked workflow, when it has come to its bitter end."""
    async with Worker(client, task_queue=queue, workflows=[Marked], activities=[carry, drop]):
        handle = await client.start_workflow(
            Marked.run, Note(MARK), id=f"marked-{uuid.uuid4()}", task_queue=queue, memo={"given": MARK}
        )
        await handle.signal(Marked.hear, MARK)
        told = await handle.execute_update(Marked.tell, MARK)  # pyright: ignore[reportUnknownMemberType] - the SDK's overloads
        assert told == f"told {MARK}"
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
    cause = failed.value.cause
    assert isinstance(cause, ApplicationError)
    assert (cause.message, *cause.details) == (f"gave up on {MARK}", MARK)
    return handle


@pytest.mark.slow
async def test_temporal_holds_no_content_anywhere_failures_memos_and_heartbeats_included(
    client: Client, temporal_address: str, queue: str
) -> None:
    sealed = await Client.connect(temporal_address, data_converter=encrypted(keys=BOTH))
    assert MARK.encode() not in await held(sealed, await marked(sealed, queue))
    assert MARK.encode() in await held(client, await marked(client, queue))


async def test_decisions_are_encrypted_and_replay_with_the_same_factory(
    temporal_address: str, queue: str
) -> None:
    converter = encrypted(DataConverter(payload_converter_class=OwnPayloads), keys=OLD)
    client = await Client.connect(temporal_address, data_converter=converter)
    store = MemoryStore()
    async with worker(client, app(always()), store, queue):
        handle = await start(client, queue, SortLetter.run, f"it crashes on {MARK}")
        filed, _ = await handle.result()
    assert filed == "filed in bug"
    assert len(store.decisions) == 1
    assert client.data_converter is converter
    assert MARK.encode() not in await held(client, handle)
    history = await handle.fetch_history()
    for keys, replayed in ((BOTH, True), (NEW, False)):
        replayer = Replayer(
            workflows=WORKFLOWS,
            plugins=[ClassifierPlugin(app(always()).resolve({}), MemoryStore())],
            data_converter=encrypted(keys=keys),
        )
        result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
        assert (result.replay_failure is None) == replayed


async def test_a_client_without_the_key_fails_and_names_it(temporal_address: str, queue: str) -> None:
    client = await Client.connect(temporal_address, data_converter=encrypted(keys=OLD))
    async with worker(client, app(always()), MemoryStore(), queue):
        handle = await start(client, queue, SortLetter.run, "it crashes")
        await handle.result()
    other = await Client.connect(temporal_address, data_converter=encrypted(keys=NEW))
    with pytest.raises(CodecKeyMissing, match="'old'"):
        await other.get_workflow_handle(handle.id).result()
    plain = await Client.connect(temporal_address)
    with pytest.raises(KeyError, match="binary/classifier-aes-256-gcm"):
        await plain.get_workflow_handle(handle.id).result()


@pytest.mark.slow
async def test_a_worker_without_the_key_says_which_and_the_run_goes_on_where_it_is_known(
    temporal_address: str, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = await Client.connect(temporal_address, data_converter=encrypted(keys=OLD))
    other = await Client.connect(temporal_address, data_converter=encrypted(keys=NEW))
    store = MemoryStore()
    with caplog.at_level(logging.ERROR):
        async with worker(other, app(always()), store, queue):
            handle = await start(client, queue, SortLetter.run, f"it crashes on {MARK}")

            async def complained() -> bool:
                return "the key 'old'" in caplog.text

            await until(complained)
    assert MARK not in caplog.text
    assert store.decisions == {}
    async with worker(client, app(always()), store, queue):
        filed, _ = await handle.result()
    assert filed == "filed in bug"
    assert (await handle.describe()).status is WorkflowExecutionStatus.COMPLETED


async def test_runs_from_before_encryption_go_on_where_plain_text_is_accepted(
    client: Client, temporal_address: str, queue: str
) -> None:
    handle = await start(client, queue, SortLetter.run, "it crashes")
    converter = encrypted(keys=NEW, plaintext="accept")
    later = await Client.connect(temporal_address, data_converter=converter)
    async with worker(later, app(always()), MemoryStore(), queue):
        filed, _ = await later.get_workflow_handle_for(SortLetter.run, handle.id).result()
    assert filed == "filed in bug"
    with pytest.raises(KeyError, match="binary/classifier-aes-256-gcm"):
        await handle.result()
