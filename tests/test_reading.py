"""Lines in batches: nothing is missed, and numbers are those of the file."""

from __future__ import annotations

from commands.reading import batches


async def test_lines_keep_their_numbers_in_the_file_though_blank_ones_are_left_out() -> None:
    found = [batch async for batch in batches([b"a\n", b"\n", b"  \n", b"b\n", b"c"], 2)]
    assert found == [[(1, b"a\n"), (4, b"b\n")], [(5, b"c")]]


async def test_the_mark_that_windows_puts_before_a_file_is_no_part_of_its_first_line() -> None:
    found = [batch async for batch in batches([b"\xef\xbb\xbf{}\r\n", b"\xef\xbb\xbf{}\r\n"], 9)]
    assert found == [[(1, b"{}\r\n"), (2, b"\xef\xbb\xbf{}\r\n")]]
