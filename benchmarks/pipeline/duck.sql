-- The core job for DuckDB: the tables `calls` and `slo` from the same segment files ({segments}).
-- Frames are split with string functions, which are much faster than DuckDB's JSON reader. That reader parses only NQ
-- failures, and LRPM results with meta data. Each message is decoded once.

create or replace temp table failing(protocol varchar, code varchar, status varchar, reason varchar);
insert into failing
select protocol, code, status, reason
from (values
    ('7', '7', 'hub.err.no_such_procedure', 'notarget', 'not_executed', 'no_such_method'),
    ('8', '2', 'hub.err.no_such_callback', 'nocallback', 'not_executed', 'no_such_callback'),
    ('11', '8', 'hub.err.unavailable', 'unavailable', 'not_executed', 'unavailable'),
    ('12', '12', 'hub.err.denied', 'denied', 'not_executed', 'denied'),
    ('13', '13', 'hub.err.bad_arguments', 'badargs', 'not_executed', 'bad_arguments'),
    ('14', '14', 'hub.err.busy', 'busy', 'not_executed', 'overloaded'),
    ('15', '15', 'hub.err.too_large', 'toolarge', 'not_executed', 'too_large'),
    ('9', '9', 'hub.err.timeout', 'expired', 'timeout', 'timeout'),
    ('10', '10', 'hub.err.lost', null, 'lost', 'lost'),
    ('16', '16', '.err.cancelled', 'cancelled', 'cancelled', 'cancelled')
) as t(umq, umq36, lrpm, nq, status, reason)
cross join lateral (values ('umq', umq), ('umq36', umq36), ('lrpm-json', lrpm), ('nq', nq)) as c(protocol, code)
where code is not null;

create or replace temp table said as
with frames as (
    select seq, "at" as since, run, session, peer, protocol, direction = 'out' as is_out, op, size, decode(payload) as p
    from read_parquet('{segments}')
    where kind = 'text'
), heads as (
    select *, case protocol
        when 'lrpm-json' then split_part(p, ',', 1)
        when 'nq' then substr(p, 1, 4)
        else substr(p, 1, 1) end as head
    from frames
), kinds as (
    select *, case protocol
        when 'umq' then case head
            when 'M' then 'call' when 'R' then 'result' when 'E' then 'failure' when '!' then 'failure' end
        when 'umq36' then case head
            when 'C' then 'call' when 'R' then 'result' when 'E' then 'failure' when '!' then 'failure' end
        when 'lrpm-json' then case head
            when '[40' then 'call' when '[20' then 'failure' when '[21' then 'cancel'
            when '[41' then case
                when ends_with(p, ',{{}}]') then 'result'
                when json_extract_string(p, '$[3].progress') = 'true' then 'progress'
                when json_extract(p, '$[3].part') is null or json_extract_string(p, '$[3].last') = 'true' then 'result'
                else 'part' end
            end
        else case head
            when '{{"t"' then case when contains(p, '","r":"') then 'call' else 'cancel' end
            when '{{"a"' then case
                when contains(p, '","d":') then case
                    when not contains(right(p, 24), '"n":') then 'result'
                    when json_extract(p, '$.n') is null or json_extract(p, '$.f') = 0 then 'result' else 'part' end
                when contains(p, '","e":') then
                    case when contains(p, '"fatal":true') then 'failure' else 'progress' end
                else 'accepted' end
            when '{{"i"' then case when contains(p, '"fatal":true') then 'cancel' end
            end
        end as kind
    from heads
)
select
    seq, since, run, session, peer, protocol, op, size,
    case kind
        when 'call' then if(is_out, 2, 1)
        when 'accepted' then if(is_out, 5, 0)
        when 'cancel' then if(is_out, 0, 6)
        when 'part' then if(is_out, 7, 0)
        when 'progress' then if(is_out, 8, 0)
        else if(is_out, 4, 3) end::tinyint as role,
    case when kind = 'call' then case protocol
        when 'umq' then split_part(p, chr(10), 2)
        when 'nq' then split_part(p, '"', 4)
        else split_part(p, '"', 2) end end as target,
    case when kind = 'failure' then case protocol
        when 'lrpm-json' then split_part(p, '"', 2)
        when 'nq' then coalesce(json_extract_string(p, '$.e.err'), '')
        else regexp_extract(substr(p, strpos(p, if(protocol = 'umq', chr(10), ':')) + 1), '^([0-9]+) ', 1) end
    end as code,
    case when op is null then case protocol
        when 'umq' then substr(split_part(p, chr(10), 1), 2)
        when 'umq36' then substr(split_part(p, ':', 1), 2)
        when 'lrpm-json' then if(kind = 'failure', split_part(p, ',', 3), split_part(p, ',', 2))
        else split_part(p, '"', 8) end end as id
from kinds
where kind is not null;

-- Without an operation: the n-th use of an id and its n-th response are one call; an NQ retransmission is no new use.
create or replace temp table unnamed as
select
    seq, since, run, role,
    if(protocol = 'nq', peer, session) || ' ' || (role in (2, 3))::varchar || ' ' || id || ' ' ||
    if(protocol = 'nq', 0, row_number() over (partition by run, session, id, role order by seq))::varchar as key
from said where op is null and role in (1, 2, 3, 4);

-- Within a run, `seq` is the order, because the clock may be set back. Aggregate only numbers and the positions of the
-- first messages: aggregating first texts would take twice as long.
create or replace temp table matched as
select
    run, key, op,
    arg_min(since, seq) filter (role = 1) as requested_at,
    arg_min(since, seq) filter (role = 2) as forwarded_at,
    arg_min(since, seq) filter (role = 3) as returned_at,
    arg_min(since, seq) filter (role = 4) as answered_at,
    arg_min(since, seq) filter (role = 5) as accepted_at,
    arg_min(since, seq) filter (role = 6) as cancelled_at,
    min(seq) filter (role = 1) as asked,
    min(seq) filter (role = 2) as passed,
    min(seq) filter (role = 4) as told,
    count(*) filter (role = 1) as attempts,
    count(*) filter (role = 2) as forwards,
    count(*) filter (role = 3) as returns,
    count(*) filter (role = 4) as answers,
    count(*) filter (role = 7) as parts,
    count(*) filter (role = 8) as progress,
    max(seq) filter (role = 1) as last_asked
from (
    select run, op as key, op, seq, since, role from said where op is not null and role > 0
    union all
    select run, key, null, seq, since, role from unnamed
)
group by run, key, op
having attempts > 0 or forwards > 0;

create or replace temp table names as
select protocol, target, lower(regexp_replace(
    regexp_replace(
        translate(target, case protocol when 'nq' then '-:/' when 'lrpm-json' then '' else ':' end,
            case protocol when 'nq' then '...' when 'lrpm-json' then '' else '.' end),
        '([a-z0-9])([A-Z])', '\1_\2', 'g'),
    '([A-Z])([A-Z][a-z])', '\1_\2', 'g')) as method
from (select distinct protocol, target from said where role in (1, 2) and target is not null);

create or replace temp table useless as
with late as (select run, key, op, told from matched where last_asked > told)
select late.run, late.key, count(*) as useless
from late
join (
    select run, op as key, seq from said where role = 1 and op is not null
    union all
    select run, key, seq from unnamed where role = 1
) as asks on asks.run = late.run and asks.key = late.key and asks.seq > late.told
group by all;

create or replace temp table calls as
select
    strftime(make_timestamp(coalesce(requested_at, forwarded_at) // 1000), '%Y-%m-%d') as date,
    m.run, m.op, coalesce(n.method, o.method) as method,
    a.session as caller_session, a.peer as caller_peer, a.protocol as caller_protocol,
    p.session as callee_session, p.peer as callee_peer, p.protocol as callee_protocol,
    requested_at, accepted_at, forwarded_at, returned_at, answered_at, cancelled_at,
    case
        when told is null then if(cancelled_at is null, 'unanswered', 'cancelled')
        when t.code is null then 'result'
        else coalesce(f.status, 'failed') end as outcome,
    if(t.code is null, null, coalesce(f.reason, 'raised')) as reason,
    nullif(t.code, '') as code,
    attempts::int as attempts, answers::int as answers, forwards::int as forwards, returns::int as returns,
    parts::int as parts, progress::int as progress, coalesce(u.useless, 0)::int as useless,
    a.size as request_size, t.size as answer_size,
    if(answered_at >= requested_at, answered_at - requested_at, null) as latency_ns,
    if(returned_at >= forwarded_at, returned_at - forwarded_at, null) as callee_ns,
    if(latency_ns >= callee_ns, latency_ns - callee_ns, null) as hub_ns,
    coalesce(answered_at < requested_at, false)::int + coalesce(returned_at < forwarded_at, false)::int
        + coalesce(latency_ns < callee_ns, false)::int as negative_durations
from matched as m
left join (select run, seq, session, peer, protocol, target, size from said where role = 1) as a
    on a.run = m.run and a.seq = m.asked
left join (select run, seq, session, peer, protocol, target from said where role = 2) as p
    on p.run = m.run and p.seq = m.passed
left join (select run, seq, protocol, code, size from said where role = 4) as t on t.run = m.run and t.seq = m.told
left join names as n on n.protocol = a.protocol and n.target = a.target
left join names as o on m.asked is null and o.protocol = p.protocol and o.target = p.target
left join failing as f on f.protocol = t.protocol and f.code = t.code
left join useless as u on u.run = m.run and u.key = m.key;

create or replace temp table slo as
with minutes as (
    select
        requested_at // 60000000000 as minute, method, count(*) as calls,
        count(*) filter (outcome not in ('result', 'cancelled')) as errors,
        quantile_disc(latency_ns, [0.5, 0.95, 0.99]) as q,
        max(latency_ns) as max_ns
    from calls
    where requested_at is not null
    group by all
)
select
    strftime(make_timestamp(minute * 60000000), '%Y-%m-%d') as date, make_timestamp(minute * 60000000) as minute,
    method, calls, errors, errors / calls as error_rate, q[1] as p50_ns, q[2] as p95_ns, q[3] as p99_ns, max_ns
from minutes;

copy calls to '{out}/calls.parquet' (format parquet, compression zstd);
copy slo to '{out}/slo.parquet' (format parquet, compression zstd);
