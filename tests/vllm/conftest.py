"""One gateway with three real engines for all tests. They are collected only where the environment of vLLM is named."""

import os
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.vllm.running import INTERPRETER, House, furnish

collect_ignore_glob = [] if os.environ.get(INTERPRETER) else ["test_*.py"]


@pytest.fixture(scope="session")
def session_house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = furnish(tmp_path_factory.mktemp("vllm"), Path(os.environ[INTERPRETER]))
    try:
        house.start()
        yield house
    finally:
        house.stop()


@pytest.fixture
def house(session_house: House) -> Iterator[House]:
    yield session_house
    session_house.gateway.check_books()


@pytest.fixture
def client(house: House) -> Iterator[openai.OpenAI]:
    with house.gateway.client(timeout=60) as client:
        yield client
