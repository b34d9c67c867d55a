"""Encoders and models are loaded once for all tests here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from classifier.models.local.encoder import E5Encoder, SparrowEncoder
from classifier.models.local.model import LocalModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture(scope="session")
def e5_encoder() -> E5Encoder:
    return E5Encoder()


@pytest.fixture(scope="session")
def sparrow_encoder() -> SparrowEncoder:
    return SparrowEncoder()


@pytest.fixture(scope="session")
async def e5() -> AsyncIterator[LocalModel]:
    model = LocalModel(encoder="e5")
    yield model
    await model.aclose()


@pytest.fixture(scope="session")
async def sparrow() -> AsyncIterator[LocalModel]:
    model = LocalModel(encoder="sparrow")
    yield model
    await model.aclose()
