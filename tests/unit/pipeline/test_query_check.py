"""Checks of a query before Spark starts: certain errors are rejected, and nothing else."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from fiveways.pipeline.errors import PipelineError
from fiveways.pipeline.query_check import check_query, read_table_columns

TABLES = {
    "slo": ["date", "minute", "method", "calls", "p95_ns"],
    "calls": ["date", "run", "op", "method", "latency_ns"],
    "messages": ["run", "seq", "at", "kind"],
}
OUT = Path("tables")

GOOD = [
    "select 1",
    "select * from slo",
    "SELECT Method, SUM(calls) FROM SLO GROUP BY 1",
    "select `method` from `slo`",
    "select s.method from slo s join calls as c on s.method = c.method",
    "with x as (select * from slo), y (a, b) as (select method, calls from x) select a from y join x on true",
    "with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) select n from r",
    "select * from (select method as m from calls) where m like 'from nowhere'",
    "select * from ((select method from calls) union (select method from slo)) q",
    "select extract(hour from minute) as h from slo",
    "select trim(both 'x' from method), substring(method from 2 for 3) from slo",
    "select op is distinct from run from calls",
    "select op is not distinct from nowhere from (select 1 as op, 2 as nowhere)",
    "select * from range(10)",
    "select * from values (1, 2) as t(a, b)",
    "select * from parquet.`/some/where`",
    "select * from global_temp.it",
    "select * from identifier('slo')",
    "select * from stream slo",
    "select explode(array(1, 2)) as e from slo lateral view explode(array(1)) t as f",
    "select \"from nowhere\", 'it''s from nowhere', 'a \\' from nowhere', r'\\' from calls",
    "select 1 -- from nowhere\n from slo /* join nowhere */",
    "select 1 /* one /* two */ from nowhere */ from slo",
    "from slo select method",
    "from slo |> where calls > 1 |> aggregate sum(calls) as nowhere |> select nowhere",
    "table slo",
    "show tables from nowhere",
    "describe slo",
    "explain select * from nowhere",
    "select calls + 1 as more, more from slo",
    "select method m, m from slo",
    "select current_date, current_user, user, now() from slo",
    "select date '2026-01-01', timestamp '2026-01-01', interval '1' day, x'1F' from messages",
    "select _metadata from slo",
    "select count(*), count(distinct method), max(p95_ns) over (order by minute) from slo",
    "select sum(calls) filter (where method = 'a') from slo",
    "select null, true, 1.5, -calls, not true from slo",
    "select * except (date) from slo",
    "select nowhere.x from slo nowhere",
    "select case when calls > 1 then 'a' else 'b' end as size, size from slo order by size",
    "select transform(array(1), x -> x + 1) from slo",
    "select method from slo where nonsense = 1",
    "select distinct method from slo limit 3",
    "select method || 'x' from slo",
    "select a from (select 1 as a) union select method from slo",
    "select date from slo where exists (select 1 from calls where calls.method = slo.method)",
    "select join.method from slo join",
    "",
    "selct",
]
BAD = [
    ("select * from sloo", "no table 'sloo' in tables; did you mean slo?"),
    ("select * from Call", "no table 'Call' in tables; did you mean calls?"),
    ("select * from slo join mesages using (run)", "no table 'mesages' in tables; did you mean messages?"),
    ("select * from (select * from sloo)", "no table 'sloo' in tables; did you mean slo?"),
    ("with x as (select * from sloo) select * from x", "no table 'sloo' in tables; did you mean slo?"),
    ("select * from `zzz`", "no table 'zzz' in tables; `fiveways pipeline tables` lists them"),
    ("select metod from slo", "no column 'metod' in slo; did you mean method?"),
    ("select sum(cals) from slo", "no column 'cals' in slo; did you mean calls?"),
    ("select method, p95 as p, 1 from SLO where x", "no column 'p95' in SLO; did you mean p95_ns?"),
    ("select zzz from slo;", "no column 'zzz' in slo; `fiveways pipeline tables slo` lists them"),
]


@pytest.mark.parametrize("query", GOOD)
def test_possibly_valid_query_is_accepted(query: str) -> None:
    check_query(query, TABLES, OUT)


@pytest.mark.parametrize(("query", "sentence"), BAD)
def test_unknown_name_is_rejected_with_a_suggestion(query: str, sentence: str) -> None:
    with pytest.raises(PipelineError) as raised:
        check_query(query, TABLES, OUT)
    assert str(raised.value) == sentence


def test_table_columns_are_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "_run.json").write_text("{}")
    for name in ("slo", "_work", ".hidden"):
        (tmp_path / name).mkdir()
        parquet.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / name / "empty.parquet")
    (tmp_path / "nothing in it").mkdir()
    assert read_table_columns(tmp_path) == {"slo": ["a", "b"]}


def test_directory_without_tables_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for name, sentence in {
        "none": "directory .*none does not exist; create it with `fiveways pipeline run --out .*none`",
        "file": "file is not a directory",
        "empty": "empty has no tables; create them with `fiveways pipeline run --out .*empty`",
    }.items():
        with pytest.raises(PipelineError, match=sentence):
            read_table_columns(tmp_path / name)
