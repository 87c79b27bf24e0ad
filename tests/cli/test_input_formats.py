"""Input of `logbroker produce`: every byte arrives as it was, and every fault names its line."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.cli.common.input_formats import InputRecord, read_csv, read_json, read_lines
from logbroker.errors import InvalidRequestError


def lines_of(text: bytes) -> Iterable[bytes]:
    return io.BytesIO(text)


def read_all_lines(text: bytes, *, key_separator: bytes | None = None, raw: bool = False) -> list[InputRecord]:
    return list(read_lines(lines_of(text), key_separator=key_separator, raw=raw))


class TestLines:
    def test_a_line_is_a_value_and_an_empty_line_an_empty_value(self) -> None:
        assert [record.value for record in read_all_lines(b"a\n\n b \r\nlast")] == [b"a", b"", b" b \r", b"last"]

    def test_the_separator_parts_at_its_first_occurrence(self) -> None:
        (record,) = read_all_lines("ключ::a::b\n".encode(), key_separator=b"::")
        assert (record.key, record.value) == ("ключ".encode(), b"a::b")

    def test_a_line_without_the_separator_is_named(self) -> None:
        with pytest.raises(InvalidRequestError, match=r"line 2 has no key: ':' does not occur"):
            read_all_lines(b"k:v\nkv\n", key_separator=b":")

    def test_bytes_that_are_not_utf8_are_refused_with_line_and_column(self) -> None:
        records = read_lines(lines_of(b"fine\nbad\xff\n"), key_separator=None, raw=False)
        assert next(records).value == b"fine"
        with pytest.raises(InvalidRequestError, match="line 2 is not UTF-8: byte 0xff at column 4"):
            next(records)

    @given(st.lists(st.binary().filter(lambda line: b"\n" not in line)))
    def test_raw_lines_pass_unchanged(self, values: list[bytes]) -> None:
        assert [record.value for record in read_all_lines(b"".join(v + b"\n" for v in values), raw=True)] == values


MARK = b"\xef\xbb\xbf"
"""The byte order mark that Excel and others begin a file with."""


def test_a_byte_order_mark_is_no_part_of_the_first_record() -> None:
    assert read_all_lines(MARK + b"k:v\n" + MARK + b"k:v\n", key_separator=b":") == [
        InputRecord(b"v", b"k"),
        InputRecord(b"v", MARK + b"k"),
    ]
    assert read_all_lines(MARK + b"v\n", raw=True) == [InputRecord(MARK + b"v")]
    assert list(read_json(lines_of(MARK + b'{"value": "v"}\n'))) == [InputRecord(b"v")]
    assert list(read_csv(lines_of(MARK + b"a\n1\n"), key_column="a")) == [InputRecord(b'{"a":"1"}', b"1")]


class TestJson:
    def test_everything_is_taken_over(self) -> None:
        line = {
            "topic": "elsewhere",
            "partition": 3,
            "offset": 17,
            "timestamp": 1_700_000_000_000,
            "key": "/w==",
            "key_encoding": "base64",
            "value": "text",
            "headers": [{"key": "a", "value": "AP8=", "value_encoding": "base64"}, {"key": "a", "value": None}],
        }
        (record,) = read_json([json.dumps(line).encode()])
        assert record == InputRecord(b"text", b"\xff", (("a", b"\x00\xff"), ("a", None)), 1_700_000_000_000, 3)

    def test_null_is_not_empty(self) -> None:
        null, empty = read_json([b'{"value": null, "key": null}\n', b"  \n", b'{"value": "", "key": ""}\n'])
        assert (null.key, null.value, empty.key, empty.value) == (None, None, b"", b"")

    @pytest.mark.parametrize(
        "line",
        [
            b"{",
            b"[]",
            b"{}",
            b'{"value": 1}',
            b'{"value": "a", "colour": "red"}',
            b'{"value": "a", "partition": -1}',
            b'{"value": "a", "timestamp": 9223372036854775808}',
            b'{"value": "!", "value_encoding": "base64"}',
            '{"value": "QUJDé==", "value_encoding": "base64"}'.encode(),
            '{"value": "a", "key": "clé", "key_encoding": "base64"}'.encode(),
            '{"value": "a", "headers": [{"key": "h", "value": "“Qg==”", "value_encoding": "base64"}]}'.encode(),
            b'{"value": "a", "value_encoding": "hex"}',
            b'{"value": "a", "priority": 10}',
            b'{"value": "a", "priority": -1}',
            b'{"value": "a", "priority": "high"}',
            b'{"value": "\\ud800"}',
            b'{"value": "\xff"}',
        ],
    )
    def test_a_faulty_line_is_named(self, line: bytes) -> None:
        with pytest.raises(InvalidRequestError, match="line 2 is not"):
            list(read_json([b'{"value": "fine"}\n', line]))

    @pytest.mark.parametrize("text", ["\\ud800", "\\uDC00x", "a\\ud83d\\u0041", "\\ud83d\\ude00\\\\\\ud83d"])
    def test_half_of_a_surrogate_pair_is_named(self, text: str) -> None:
        with pytest.raises(
            InvalidRequestError, match=r"line 1 is not a record: \\u[dD][8C]\w\w is half of a surrogate pair"
        ):
            list(read_json([f'{{"value": "{text}"}}'.encode()]))

    def test_pairs_and_escaped_backslashes_are_text(self) -> None:
        (record,) = read_json([b'{"value": "\\ud83d\\ude00 \\\\ud800"}'])
        assert record == InputRecord("\U0001f600 \\ud800".encode())

    @given(text=st.text(), key=st.text(), header=st.text())
    def test_whatever_stands_in_place_of_base64_is_a_record_or_a_named_line(
        self, text: str, key: str, header: str
    ) -> None:
        headers = [{"key": "h", "value": header, "value_encoding": "base64"}]
        line = {"value": text, "value_encoding": "base64", "key": key, "key_encoding": "base64", "headers": headers}
        with contextlib.suppress(InvalidRequestError):
            list(read_json([json.dumps(line, ensure_ascii=False).encode()]))


class TestCsv:
    def test_a_row_is_an_object_in_the_order_of_the_columns(self) -> None:
        rows = lines_of(b'\xef\xbb\xbfb,a\r\n1,"x ""y"", z"\r\n\r\n2,"two\r\nlines"\r\n')
        first, second = read_csv(rows, key_column="b")
        assert (first.key, first.value) == (b"1", b'{"b":"1","a":"x \\"y\\", z"}')
        assert second.value is not None
        assert json.loads(second.value) == {"b": "2", "a": "two\r\nlines"}

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            (b"", "the input is empty"),
            (b"a,a\n", "two columns have the same name"),
            (b"a,b\n", "no column 'k'; there are: a, b"),
            (b"k,b\n1,2\n3\n", "line 3 has 1 fields; there are 2 columns"),
            (b'k,b\n1,"2"x\n', "line 2 is not CSV"),
            (b'k,b\n1,"2\n', "line 2 is not CSV"),
            (b"k,b\n1,\xe9\n", "line 2 is not UTF-8: byte 0xe9 at column 3"),
        ],
    )
    def test_a_fault_is_named(self, text: bytes, complaint: str) -> None:
        with pytest.raises(InvalidRequestError, match=complaint):
            list(read_csv(lines_of(text), key_column="k"))

    def test_a_column_may_be_the_priority_and_its_empty_fields_none(self) -> None:
        records = list(read_csv(lines_of(b"p,v\n9,a\n0,b\n,c\n"), priority_column="p"))
        assert [record.priority for record in records] == [9, 0, None]
        assert records[0].value == b'{"p":"9","v":"a"}'
        assert [record.priority for record in read_csv(lines_of(b"p\n9\n"))] == [None]

    @pytest.mark.parametrize("text", ["10", "-1", "high", "4.0", " "])
    def test_what_is_no_priority_is_named_with_its_line(self, text: str) -> None:
        with pytest.raises(InvalidRequestError, match=f"line 3: '{text}' is no priority: give 0 to 9"):
            list(read_csv(lines_of(f"k,p\nx,1\ny,{text}\n".encode()), priority_column="p"))
        with pytest.raises(InvalidRequestError, match="no column 'q'; there are: k, p"):
            list(read_csv(lines_of(b"k,p\n"), priority_column="q"))

    @given(st.lists(st.tuples(st.text(min_size=1), st.text()), min_size=1))
    def test_what_python_writes_is_read(self, rows: list[tuple[str, str]]) -> None:
        text = io.StringIO(newline="")
        writer = csv.writer(text, quoting=csv.QUOTE_ALL)
        writer.writerows([("k", "v"), *rows])
        records = list(read_csv(lines_of(text.getvalue().encode("utf-8")), key_column="k"))
        assert [record.key for record in records] == [key.encode() for key, _ in rows]
        values = [msgspec.json.decode(record.value, type=dict[str, str]) for record in records if record.value]
        assert values == [{"k": key, "v": value} for key, value in rows]
