"""Models over HTTPS believe the certificates that the environment names, and no others."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from activities.chat_model import ChatModels
from classifier.agent import Agent, LanguageModel
from classifier.errors import ModelError, ModelUnavailable
from classifier.models.chat import ChatModel
from classifier.models.protocol import DecisionRequest
from classifier.models.systemone import SystemOne
from classifier.models.trust import trusted
from classifier.questions import Boolean

HOST = "127.0.0.1"
TEAPOT = b"HTTP/1.1 418 I'm a teapot\r\ncontent-length: 0\r\n\r\n"
REQUEST = DecisionRequest("hello", {"spam": Boolean()})


async def system_one_asked(url: str) -> None:
    async with contextlib.aclosing(SystemOne("m-1", base_url=url, api_key="sk-test")) as model:
        await model.decide(REQUEST)


async def chat_model_asked(url: str) -> None:
    async with contextlib.aclosing(ChatModel("m-1", base_url=url, api_key="sk-test")) as model:
        await model.decide(REQUEST)


async def agent_asked(url: str) -> None:
    models = ChatModels({"KEY": "sk-test"})
    agent = Agent(id="a", model=LanguageModel("m-1", base_url=url, key_variable="KEY"))
    async with contextlib.aclosing(models):
        async for _ in models.reply(agent, [{"role": "user", "content": "hello"}]):
            pass


@pytest.fixture
def anew() -> Iterator[None]:
    """What is trusted is read from the environment of this test."""
    trusted.cache_clear()
    yield
    trusted.cache_clear()


def certificate(folder: Path) -> Path:
    """A key, and a certificate for this machine that it signed itself, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a company's own")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "ca.pem"
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return file


@contextlib.asynccontextmanager
async def server(file: Path) -> AsyncGenerator[str]:
    """Says to everybody who believes its certificate that it is a teapot."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(TEAPOT)
            await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, HOST, 0, ssl=context)
    async with listening:
        yield f"https://{HOST}:{listening.sockets[0].getsockname()[1]}/v1"


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize("asked", [system_one_asked, chat_model_asked, agent_asked])
async def test_a_companys_own_certificate_counts_where_the_environment_names_it(
    asked: Callable[[str], Awaitable[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = certificate(tmp_path)
    async with server(file) as url:
        with pytest.raises(ModelUnavailable):
            await asked(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        trusted.cache_clear()
        with pytest.raises(ModelError, match="418"):
            await asked(url)
