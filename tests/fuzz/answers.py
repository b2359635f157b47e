"""What a receiver sends: read without an exception, within bounds, and the same however it is cut into segments."""

from service.sender.answers import MAX_EXCERPT, AnswerReader, State

SEEDS = (
    b"\0HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    b"\1HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    b"\2HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 No\r\nretry-after: 5\r\nRetry-After: x\r\n\r\n",
    b"\3HTTP/1.0 204\r\nconnection: keep-alive\r\n\r\nsurplus",
    b"\4HTTP/1.1 101 Switching\r\n\r\n",
    b"\5HTTP/1.1 200 OK\nx: y\n z\n\n",
    b"\6HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
)


def try_one(data: bytes) -> None:
    if len(data) < 2:
        return
    size, answer = 1 + data[0] % 64, data[1:]
    whole, pieces = AnswerReader(), AnswerReader()
    whole.feed(answer)
    for at in range(0, len(answer), size):
        pieces.feed(answer[at : at + size])
    assert read_facts(whole) == read_facts(pieces)
    for reader in (whole, pieces):
        check(reader)
        reader.end()
        check(reader)
        assert reader.state in {State.DONE, State.BROKEN}
        assert not reader.reusable
    assert read_facts(whole) == read_facts(pieces)


def read_facts(reader: AnswerReader) -> tuple[object, ...]:
    problem = reader.problem if reader.state is State.BROKEN else ""
    known = (reader.state, reader.status, reader.reusable, reader.excerpt, reader.retry_after, problem)
    return (*known, reader.surplus, reader.flags())


def check(reader: AnswerReader) -> None:
    assert len(reader.excerpt) <= MAX_EXCERPT
    assert reader.flags() is not None
    if reader.state in {State.BODY, State.DONE}:
        assert 100 <= reader.status <= 999
        assert reader.status >= 200 or reader.status == 101
    if reader.state is State.BROKEN:
        assert reader.problem
        assert not reader.reusable
    if reader.reusable and reader.state is State.DONE:
        assert not reader.surplus
