-- Version 1 of the format. Migrate runs it in one transaction. FORMAT.md says what the next
-- version may change.
--
-- Fixed columns that are never null come first, then other fixed ones, then texts: so rows have
-- no gaps. Texts are compared by their bytes (collate "C"), as Go does.

-- The version, in one row. Migrate writes version and oldest; sweep.sql writes swept_to.
create table tickwheel.format (
    version  int4 not null,           -- of the format
    oldest   int4 not null,           -- a program that knows an older version than this does nothing here
    swept_to text collate "C" not null -- the id up to which the last pass of sweep.sql has come
);
alter table tickwheel.format replica identity full; -- it is of one row, and has no key to be replicated by
insert into tickwheel.format values (1, 1, '');

-- Jobs, one row each. Add, AddTx and add_job insert them, and so does the end of an occurrence.
--
-- A claim, and the end of a job that is done, change no indexed column, except the key of a job
-- that has one. So these updates stay within the page (HOT), for which half of each page is left
-- free: a poll for overdue jobs writes all rows of a page at once. With a third, six of ten updates of
-- a backlog were HOT. That is why no index has the state in it, not even in its condition.
create table tickwheel.job (
    due          timestamptz not null,     -- of the next attempt; of a dead or retained job: when it is forgotten
    born         timestamptz not null,     -- when it was added
    at           timestamptz not null,     -- when it was first due
    version      int4 not null,            -- counts the changes of due by a move, a retry, a redrive and a signal
    attempt      int4 not null,            -- attempts that have begun
    claim        int4 not null default 0,  -- counts claims: an end is that of its own claim only
    max_attempts int4 not null,
    crashes      int4 not null default 0,  -- claims that never ended, since an attempt has ended
    state        int2 not null default 0,  -- 0 waits, 1 runs, 2 is dead, 3 has ended, 4 is done and retained, 5 canceled and retained
    exact        bool not null default false, -- the claim counts as an attempt though it never ends
    held_until   timestamptz,              -- not handed out again before; null: not handed out
    filled       timestamptz,              -- when another job of its key went into it, since it is due; null: none did
    holder       int8,                     -- the worker that was handed it, or has claimed it; of a deferred
                                           -- job: minus the revision of flow_control (release.sql);
                                           -- of a claim that its worker does not know: forget.sql
    last_due     timestamptz,              -- of a dead or retained job: when its last attempt was due
    expires      timestamptz,              -- no attempt begins at or after this time
    first_born   timestamptz,              -- when the first job of a chain was added that was pushed back;
                                           -- null: this is the first
    ord          int8,                     -- with a given_key: orders the jobs of the key, as they took it. Null once the
                                           -- job has ended, unless it has begun and an older one of the key has not ended
    timeout      int8,                     -- of an attempt, in microseconds
    retain       int8,                     -- for how long it is kept after its end, in microseconds; null: it is not
    priority     int2,                     -- 1 high, -1 low; null: normal
    flags        int2,                     -- 1: leaves its key when it begins; 2: takes signals; 4: retains its payload; null: none
    id           text collate "C" primary key, -- born (11 digits to the base 36), ".", ID
    kind         text collate "C" not null,
    key          text collate "C",         -- while it waits or runs, unless it has left it
    given_key    text collate "C",         -- the key that it was added with: a retry and a redrive take it again
    lane         text collate "C",
    schedule     text collate "C" not null, -- of an occurrence, and of RunNow: the schedule's name; '': neither
    occurrence   text collate "C",         -- of an occurrence: JSON, from which any worker makes the next one; insert_on_key.sql has another use
    last_error   text collate "C" not null, -- of the last attempt that failed
    permits      int8[],                   -- the limits of which the claim has a permit
    errors       jsonb,                    -- of the attempts that failed: [{at, attempt, error}], the newest last
    meta         jsonb,                    -- names and values, to search for by equality
    ending       jsonb,                    -- of one with a retain that has ended: {state, began, ended, worker}
    signal       bytea,                    -- the payload of the signal; null: none came
    payload      bytea not null
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_threshold = 5000,
    toast.autovacuum_vacuum_cost_delay = 0
);
create unique index job_key on tickwheel.job (key) where key is not null;
create index job_order on tickwheel.job (given_key, ord) where ord is not null; -- a query that compares (ord, id) with
    -- another job's has this condition, too: the comparison does not imply it for the planner
create index job_kind on tickwheel.job (kind, due); -- a worker reads only the kinds that it has handlers for
create index job_meta on tickwheel.job using gin (meta jsonb_path_ops) where meta is not null;

-- Workers, one row each, which each worker writes itself. Its heartbeat renews the lease of all jobs that it
-- has claimed. A row is removed a day after its lease has ended.
create table tickwheel.worker (
    id    int8 primary key,                           -- random: work.sql
    until timestamptz not null,                       -- the end of its lease
    freed bool not null default false,                -- after its death its permits were freed: free_dead.sql
    name  text collate "C" not null unique,
    kinds text[] collate "C" not null default '{}'    -- those with a handler
) with (fillfactor = 50, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0);

-- Schedules, by name. Schedule and the like write all but last, which the end of an occurrence
-- writes. A deleted one is kept for a week, without a definition: the end of its last occurrence
-- reads it.
create table tickwheel.schedule (
    revision   int8 not null,                      -- grows with each change
    changed    timestamptz not null default now(),
    last       timestamptz,                        -- the time of the last occurrence that has ended
    name       text collate "C" primary key,
    definition text collate "C" not null           -- JSON; '': deleted
) with (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.1);

-- Limits and pauses: one document, in one row. A claim names the revision by which it was judged,
-- and is refused by another.
create table tickwheel.flow_control (
    revision   int8 not null,           -- grows with each change; 0: there never was a limit or a pause
    limit_ids  int8[] not null,         -- of its limits
    definition text collate "C" not null -- JSON; '': none
);
alter table tickwheel.flow_control replica identity full;
insert into tickwheel.flow_control values (0, '{}', '');

-- The counters of a limit, or of a lane under it. Claims, ends and releases write them, and lock them
-- after the jobs, by limit and lane. Times are nanoseconds since 1970. An idle row may be removed.
create table tickwheel.counter (
    limit_id       int8 not null,
    taken          int4 not null default 0, -- permits of jobs that are claimed and have not ended
    last_holder    int8,                    -- the worker that took the last permit
    reserved_for   int8,                    -- the worker that has the next permit
    reserved_until int8 not null default 0, -- if it asks again before
    full_at        int8 not null default 0, -- when all tokens of the burst are there again
    full_behind    int8 not null default 0, -- the same by a clock that is far behind that of full_at
    lane           text collate "C" not null, -- '': of all lanes together
    primary key (limit_id, lane)
) with (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.1);

-- Requests to cancel a claim that runs, by CancelRunning. They stay for a day.
create table tickwheel.cancel_request (
    id    text collate "C" primary key, -- of the job
    claim int4 not null,
    asked timestamptz not null
);

-- The rest is the function add_job, which adds jobs for triggers and for programs in other
-- languages, and the functions that it calls. They act with the rights of their owner, who has
-- migrated. Nobody else may call them until EXECUTE is granted: see grants.sql.

-- Whether a text is printable: of letters, marks, numbers, punctuation, symbols and the
-- space, by the tables of Unicode 15, as Go has them. The numbers are the code points where
-- that changes.
create function tickwheel.printable(string text) returns bool
language sql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
    select $1 collate "C" ~ '^[ -~]*$' or (
        select bool_and(width_bucket(ascii(c), '{
32,127,161,173,174,888,890,896,900,907,908,909,910,930,931,1328,1329,1367,1369,1419,1421,
1424,1425,1480,1488,1515,1519,1525,1542,1564,1565,1757,1758,1806,1808,1867,1869,1970,1984,
2043,2045,2094,2096,2111,2112,2140,2142,2143,2144,2155,2160,2191,2200,2274,2275,2436,2437,
2445,2447,2449,2451,2473,2474,2481,2482,2483,2486,2490,2492,2501,2503,2505,2507,2511,2519,
2520,2524,2526,2527,2532,2534,2559,2561,2564,2565,2571,2575,2577,2579,2601,2602,2609,2610,
2612,2613,2615,2616,2618,2620,2621,2622,2627,2631,2633,2635,2638,2641,2642,2649,2653,2654,
2655,2662,2679,2689,2692,2693,2702,2703,2706,2707,2729,2730,2737,2738,2740,2741,2746,2748,
2758,2759,2762,2763,2766,2768,2769,2784,2788,2790,2802,2809,2816,2817,2820,2821,2829,2831,
2833,2835,2857,2858,2865,2866,2868,2869,2874,2876,2885,2887,2889,2891,2894,2901,2904,2908,
2910,2911,2916,2918,2936,2946,2948,2949,2955,2958,2961,2962,2966,2969,2971,2972,2973,2974,
2976,2979,2981,2984,2987,2990,3002,3006,3011,3014,3017,3018,3022,3024,3025,3031,3032,3046,
3067,3072,3085,3086,3089,3090,3113,3114,3130,3132,3141,3142,3145,3146,3150,3157,3159,3160,
3163,3165,3166,3168,3172,3174,3184,3191,3213,3214,3217,3218,3241,3242,3252,3253,3258,3260,
3269,3270,3273,3274,3278,3285,3287,3293,3295,3296,3300,3302,3312,3313,3316,3328,3341,3342,
3345,3346,3397,3398,3401,3402,3408,3412,3428,3430,3456,3457,3460,3461,3479,3482,3506,3507,
3516,3517,3518,3520,3527,3530,3531,3535,3541,3542,3543,3544,3552,3558,3568,3570,3573,3585,
3643,3647,3676,3713,3715,3716,3717,3718,3723,3724,3748,3749,3750,3751,3774,3776,3781,3782,
3783,3784,3791,3792,3802,3804,3808,3840,3912,3913,3949,3953,3992,3993,4029,4030,4045,4046,
4059,4096,4294,4295,4296,4301,4302,4304,4681,4682,4686,4688,4695,4696,4697,4698,4702,4704,
4745,4746,4750,4752,4785,4786,4790,4792,4799,4800,4801,4802,4806,4808,4823,4824,4881,4882,
4886,4888,4955,4957,4989,4992,5018,5024,5110,5112,5118,5120,5760,5761,5789,5792,5881,5888,
5910,5919,5943,5952,5972,5984,5997,5998,6001,6002,6004,6016,6110,6112,6122,6128,6138,6144,
6158,6159,6170,6176,6265,6272,6315,6320,6390,6400,6431,6432,6444,6448,6460,6464,6465,6468,
6510,6512,6517,6528,6572,6576,6602,6608,6619,6622,6684,6686,6751,6752,6781,6783,6794,6800,
6810,6816,6830,6832,6863,6912,6989,6992,7039,7040,7156,7164,7224,7227,7242,7245,7305,7312,
7355,7357,7368,7376,7419,7424,7958,7960,7966,7968,8006,8008,8014,8016,8024,8025,8026,8027,
8028,8029,8030,8031,8062,8064,8117,8118,8133,8134,8148,8150,8156,8157,8176,8178,8181,8182,
8191,8208,8232,8240,8287,8304,8306,8308,8335,8336,8349,8352,8385,8400,8433,8448,8588,8592,
9255,9280,9291,9312,11124,11126,11158,11159,11508,11513,11558,11559,11560,11565,11566,11568,
11624,11631,11633,11647,11671,11680,11687,11688,11695,11696,11703,11704,11711,11712,11719,
11720,11727,11728,11735,11736,11743,11744,11870,11904,11930,11931,12020,12032,12246,12272,
12284,12289,12352,12353,12439,12441,12544,12549,12592,12593,12687,12688,12772,12784,12831,
12832,42125,42128,42183,42192,42540,42560,42744,42752,42955,42960,42962,42963,42964,42965,
42970,42994,43053,43056,43066,43072,43128,43136,43206,43214,43226,43232,43348,43359,43389,
43392,43470,43471,43482,43486,43519,43520,43575,43584,43598,43600,43610,43612,43715,43739,
43767,43777,43783,43785,43791,43793,43799,43808,43815,43816,43823,43824,43884,43888,44014,
44016,44026,44032,55204,55216,55239,55243,55292,63744,64110,64112,64218,64256,64263,64275,
64280,64285,64311,64312,64317,64318,64319,64320,64322,64323,64325,64326,64451,64467,64912,
64914,64968,64975,64976,65008,65050,65056,65107,65108,65127,65128,65132,65136,65141,65142,
65277,65281,65471,65474,65480,65482,65488,65490,65496,65498,65501,65504,65511,65512,65519,
65532,65534,65536,65548,65549,65575,65576,65595,65596,65598,65599,65614,65616,65630,65664,
65787,65792,65795,65799,65844,65847,65935,65936,65949,65952,65953,66000,66046,66176,66205,
66208,66257,66272,66300,66304,66340,66349,66379,66384,66427,66432,66462,66463,66500,66504,
66518,66560,66718,66720,66730,66736,66772,66776,66812,66816,66856,66864,66916,66927,66939,
66940,66955,66956,66963,66964,66966,66967,66978,66979,66994,66995,67002,67003,67005,67072,
67383,67392,67414,67424,67432,67456,67462,67463,67505,67506,67515,67584,67590,67592,67593,
67594,67638,67639,67641,67644,67645,67647,67670,67671,67743,67751,67760,67808,67827,67828,
67830,67835,67868,67871,67898,67903,67904,67968,68024,68028,68048,68050,68100,68101,68103,
68108,68116,68117,68120,68121,68150,68152,68155,68159,68169,68176,68185,68192,68256,68288,
68327,68331,68343,68352,68406,68409,68438,68440,68467,68472,68498,68505,68509,68521,68528,
68608,68681,68736,68787,68800,68851,68858,68904,68912,68922,69216,69247,69248,69290,69291,
69294,69296,69298,69373,69416,69424,69466,69488,69514,69552,69580,69600,69623,69632,69710,
69714,69750,69759,69821,69822,69827,69840,69865,69872,69882,69888,69941,69942,69960,69968,
70007,70016,70112,70113,70133,70144,70162,70163,70210,70272,70279,70280,70281,70282,70286,
70287,70302,70303,70314,70320,70379,70384,70394,70400,70404,70405,70413,70415,70417,70419,
70441,70442,70449,70450,70452,70453,70458,70459,70469,70471,70473,70475,70478,70480,70481,
70487,70488,70493,70500,70502,70509,70512,70517,70656,70748,70749,70754,70784,70856,70864,
70874,71040,71094,71096,71134,71168,71237,71248,71258,71264,71277,71296,71354,71360,71370,
71424,71451,71453,71468,71472,71495,71680,71740,71840,71923,71935,71943,71945,71946,71948,
71956,71957,71959,71960,71990,71991,71993,71995,72007,72016,72026,72096,72104,72106,72152,
72154,72165,72192,72264,72272,72355,72368,72441,72448,72458,72704,72713,72714,72759,72760,
72774,72784,72813,72816,72848,72850,72872,72873,72887,72960,72967,72968,72970,72971,73015,
73018,73019,73020,73022,73023,73032,73040,73050,73056,73062,73063,73065,73066,73103,73104,
73106,73107,73113,73120,73130,73440,73465,73472,73489,73490,73531,73534,73562,73648,73649,
73664,73714,73727,74650,74752,74863,74864,74869,74880,75076,77712,77811,77824,78896,78912,
78934,82944,83527,92160,92729,92736,92767,92768,92778,92782,92863,92864,92874,92880,92910,
92912,92918,92928,92998,93008,93018,93019,93026,93027,93048,93053,93072,93760,93851,93952,
94027,94031,94088,94095,94112,94176,94181,94192,94194,94208,100344,100352,101590,101632,101641,
110576,110580,110581,110588,110589,110591,110592,110883,110898,110899,110928,110931,110933,
110934,110948,110952,110960,111356,113664,113771,113776,113789,113792,113801,113808,113818,
113820,113824,118528,118574,118576,118599,118608,118724,118784,119030,119040,119079,119081,
119155,119163,119275,119296,119366,119488,119508,119520,119540,119552,119639,119648,119673,
119808,119893,119894,119965,119966,119968,119970,119971,119973,119975,119977,119981,119982,
119994,119995,119996,119997,120004,120005,120070,120071,120075,120077,120085,120086,120093,
120094,120122,120123,120127,120128,120133,120134,120135,120138,120145,120146,120486,120488,
120780,120782,121484,121499,121504,121505,121520,122624,122655,122661,122667,122880,122887,
122888,122905,122907,122914,122915,122917,122918,122923,122928,122990,123023,123024,123136,
123181,123184,123198,123200,123210,123214,123216,123536,123567,123584,123642,123647,123648,
124112,124154,124896,124903,124904,124908,124909,124911,124912,124927,124928,125125,125127,
125143,125184,125260,125264,125274,125278,125280,126065,126133,126209,126270,126464,126468,
126469,126496,126497,126499,126500,126501,126503,126504,126505,126515,126516,126520,126521,
126522,126523,126524,126530,126531,126535,126536,126537,126538,126539,126540,126541,126544,
126545,126547,126548,126549,126551,126552,126553,126554,126555,126556,126557,126558,126559,
126560,126561,126563,126564,126565,126567,126571,126572,126579,126580,126584,126585,126589,
126590,126591,126592,126602,126603,126620,126625,126628,126629,126634,126635,126652,126704,
126706,126976,127020,127024,127124,127136,127151,127153,127168,127169,127184,127185,127222,
127232,127406,127462,127491,127504,127548,127552,127561,127568,127570,127584,127590,127744,
128728,128732,128749,128752,128765,128768,128887,128891,128986,128992,129004,129008,129009,
129024,129036,129040,129096,129104,129114,129120,129160,129168,129198,129200,129202,129280,
129620,129632,129646,129648,129661,129664,129673,129680,129726,129727,129734,129742,129756,
129760,129769,129776,129785,129792,129939,129940,129995,130032,130042,131072,173792,173824,
177978,177984,178206,178208,183970,183984,191457,194560,195102,196608,201547,201552,205744,
917760,918000
        }'::int4[]) % 2 = 1)
        from unnest(string_to_array($1, null)) as c
    )
$$;

-- A number in digits to the base 36.
create function tickwheel.base36(number int8) returns text
language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    rest int8 := $1;
    digits text := '';
begin
    loop
        digits := substr('0123456789abcdefghijklmnopqrstuvwxyz', (rest % 36)::int4 + 1, 1) || digits;
        rest := rest / 36;
        exit when rest = 0;
    end loop;
    return digits;
end
$$;

-- The Ref of an id: with a sum (CRC-32 of IEEE 802.3, half a byte at a time) over the
-- schema's name and the id.
create function tickwheel.ref_of(id text) returns text
language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    halves constant int8[] := '{0,498536548,997073096,651767980,1994146192,1802195444,1303535960,1342533948,3988292384,
        4027552580,3604390888,3412177804,2607071920,2262029012,2685067896,3183342108}';
    bytes constant bytea := convert_to('tickwheel' || chr(10) || $1, 'UTF8');
    sum int8 := 4294967295;
begin
    for i in 0 .. length(bytes) - 1 loop
        sum := sum # get_byte(bytes, i);
        sum := (sum >> 4) # halves[(sum & 15) + 1];
        sum := (sum >> 4) # halves[(sum & 15) + 1];
    end loop;
    return $1 || '.' || tickwheel.base36(sum # 4294967295);
end
$$;

-- The error in the meta of a job; null if there is none.
create function tickwheel.wrong_meta(meta jsonb) returns text
language sql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
    select case when jsonb_typeof($1) <> 'object' then 'meta is no object' else (
        select case
            when not bool_and(jsonb_typeof(value) = 'string') then 'a value in meta is no string'
            when not bool_and(octet_length(name) between 1 and 128 and tickwheel.printable(name))
                then 'a name in meta is not printable, of 1 to 128 bytes'
            when sum(octet_length(name) + octet_length(value #>> '{}')) > 4096
                then format('meta has %s bytes, more than 4096', sum(octet_length(name) + octet_length(value #>> '{}')))
            end
        from jsonb_each($1) as m(name, value)
    ) end
$$;

-- Adds a job, in the transaction that calls it, and returns its Ref. Null: another job has the key. With on_key
-- 'keep' it returns the Ref of the job that waits under the key. The parameters are the fields of
-- durable.Job. One that is null, or left out, is not set: no payload, due now, no key and no lane,
-- priority 0, no meta, 25 attempts, no timeout, never expires, on_key 'refuse', no max_wait, no retain. It makes
-- the checks of durable: an invalid job is an error with code 22023.
create function tickwheel.add_job(
    kind text, payload bytea default null, due timestamptz default null, key text default null,
    lane text default null, priority int4 default null, meta jsonb default null,
    max_attempts int4 default null, timeout interval default null, expires timestamptz default null,
    on_key text default null, max_wait interval default null, free_when_begun bool default null, signals bool default null,
    retain interval default null, retain_payload bool default null
) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    born constant timestamptz := clock_timestamp();
    asked constant timestamptz := coalesce(due, born);
    first timestamptz := greatest(asked, born); -- at
    since timestamptz; -- first_born
    told bytea; -- signal
    soonest timestamptz := first; -- due; with a signal of the job that it ends, as soon as that
    waits record;
    tries int4 := 0;
    micros constant int8 := extract(epoch from date_trunc('second', born))::int8 * 1000000
        + extract(microseconds from born)::int8 % 1000000;
    given_key constant text := nullif(key, '');
    wrong text;
    stored text;
begin
    wrong := case
        when coalesce(kind, '') = '' then 'the kind is empty'
        when octet_length(kind) > 128 then format('the kind has %s bytes, more than 128', octet_length(kind))
        when not tickwheel.printable(kind) then 'the kind is not printable'
        when given_key like 'every/%' then 'the key begins with "every/", which is for schedules'
        when octet_length(given_key) > 256 then format('the key has %s bytes, more than 256', octet_length(given_key))
        when not tickwheel.printable(given_key) then 'the key is not printable'
        when octet_length(payload) > 262144 then format('the payload has %s bytes, more than 262144', octet_length(payload))
        when max_attempts < 0 then format('max_attempts %s is negative', max_attempts)
        when octet_length(lane) > 128 then format('the lane has %s bytes, more than 128', octet_length(lane))
        when not tickwheel.printable(lane) then 'the lane is not printable'
        when priority not between -1 and 1 then format('there is no priority %s', priority)
        when timeout < interval '0' then format('the timeout %s is negative', timeout)
        -- In seconds: a comparison of intervals counts 30 days for a month, while extract counts
        -- 365.25 days for a year, so 296 years would pass, more nanoseconds than an int8 holds.
        when extract(epoch from timeout) > 106751 * 86400.0 then format('the timeout %s is longer than 106751 days', timeout)
        when retain < interval '0' or extract(epoch from retain) > 36500 * 86400.0 then format('retain %s is negative, or more than 36500 days', retain)
        when retain_payload and coalesce(retain, interval '0') = interval '0' then 'retain_payload needs a retain'
        when expires <= asked then format('it expires at %s, and is due at %s', expires, asked)
        when asked >= '10000-01-01 00:00:00+00' then format('the time %s is beyond the year 9999', asked)
        when expires >= '10000-01-01 00:00:00+00' then format('the time %s is beyond the year 9999', expires)
        when on_key not in ('refuse', 'replace', 'later', 'keep') then format('there is no on_key %L', on_key)
        when max_wait < interval '0' or max_wait > interval '0' and on_key is distinct from 'later' then 'max_wait goes with later, and is not negative'
        when given_key is null and (coalesce(on_key, 'refuse') <> 'refuse' or free_when_begun or signals)
            then 'on_key, free_when_begun and signals go with a key'
        else tickwheel.wrong_meta(meta)
    end;
    if wrong is not null then
        raise exception 'tickwheel: invalid: %', wrong using errcode = 'invalid_parameter_value';
    end if;
    for wait in 1 .. 50 loop -- until the job begins that another has gone into: see begins.sql
        exit when coalesce(on_key, 'refuse') not in ('replace', 'later') or not exists (
            select from tickwheel.job j where j.key = add_job.key and j.state = 0 and j.due <= clock_timestamp()
                and j.filled between clock_timestamp() - interval '1 second' and clock_timestamp());
        perform pg_sleep(0.02);
    end loop;
    loop -- others may take and leave the key meanwhile: after two tries it is busy, and they take turns, by a lock
        -- for which nobody waits, since this transaction may have locked rows (try_keys.sql)
        tries := tries + 1;
        if tries > 2 and not pg_try_advisory_xact_lock(hashtextextended('tickwheel' || chr(10) || add_job.key, 0)) then
            perform pg_sleep(0.002 + 0.02 * random());
        end if;
        if given_key is not null then -- a job that has expired leaves it
            update tickwheel.job j set key = null, ord = case when j.claim > 0 then j.ord end where j.key = add_job.key and j.state = 0 and j.expires <= clock_timestamp();
        end if;
        if on_key <> 'refuse' then
            select j.id, coalesce(j.first_born, j.born) as first_born, j.due, j.signal into waits
            from tickwheel.job j where j.key = add_job.key and j.state = 0 for update;
            if found and on_key = 'keep' then
                return tickwheel.ref_of(waits.id);
            elsif found and waits.due <= clock_timestamp() then
                update tickwheel.job j
                set kind = add_job.kind, payload = coalesce(add_job.payload, ''), max_attempts = coalesce(nullif(add_job.max_attempts, 0), 25),
                    lane = nullif(add_job.lane, ''), priority = nullif(add_job.priority, 0), meta = nullif(add_job.meta, '{}'),
                    timeout = nullif((extract(epoch from add_job.timeout) * 1000000)::int8, 0), expires = add_job.expires,
                    flags = nullif(case when free_when_begun then 1 else 0 end + case when signals then 2 else 0 end + case when retain_payload then 4 else 0 end, 0),
                    retain = nullif((extract(epoch from add_job.retain) * 1000000)::int8, 0),
                    version = j.version + 1, attempt = 0, schedule = '', last_error = '', errors = null, holder = null, held_until = null,
                    signal = case when signals then j.signal end, filled = clock_timestamp()
                where j.id = waits.id;
                stored := waits.id;
                soonest := waits.due;
                exit;
            elsif found then
                update tickwheel.job j
                set state = 3, due = clock_timestamp(), holder = null, held_until = null, key = null,
                    ord = case when j.claim > 0 and exists ( -- the last of its key: finish.sql
                        select from tickwheel.job o where o.given_key = j.given_key and o.ord is not null and (o.ord, o.id) < (j.ord, j.id) and o.state < 2)
                        then j.ord end, payload = '', last_error = '', errors = null, occurrence = null, signal = null
                where j.id = waits.id;
                if on_key = 'later' then
                    since := least(waits.first_born, born);
                    if max_wait > interval '0' then
                        first := greatest(born, least(first, since + least(max_wait, interval '8000 years'))); -- no time is later, nor out of range
                    end if;
                end if;
                soonest := first;
                if signals and waits.signal is not null then
                    told := waits.signal;
                    soonest := least(first, greatest(waits.due, born));
                end if;
            end if;
        end if;
        insert into tickwheel.job (
            id, key, given_key, kind, payload, at, due, born, max_attempts, version, attempt, last_error, schedule,
            lane, priority, meta, timeout, expires, flags, retain, first_born, signal, ord)
        values (
            lpad(tickwheel.base36(micros), 11, '0') || '.' || replace(gen_random_uuid()::text, '-', '') || case when retain > interval '0' then '-kept' else '' end,
            given_key, given_key, kind, coalesce(payload, ''), first, soonest, born, coalesce(nullif(max_attempts, 0), 25), 0, 0, '', '',
            nullif(lane, ''), nullif(priority, 0), nullif(meta, '{}'), nullif((extract(epoch from timeout) * 1000000)::int8, 0), expires,
            nullif(case when free_when_begun then 1 else 0 end + case when signals then 2 else 0 end + case when retain_payload then 4 else 0 end, 0),
            nullif((extract(epoch from retain) * 1000000)::int8, 0), since, told,
            case when given_key is not null then 1 + coalesce((select max(o.ord) from tickwheel.job o where o.given_key = add_job.key), 0) end)
        on conflict do nothing
        returning job.id into stored;
        exit when stored is not null or coalesce(on_key, 'refuse') = 'refuse'
            or exists (select from tickwheel.job j where j.key = add_job.key and j.state = 1);
    end loop;
    if stored is not null and soonest < born + interval '1 second' and current_setting('max_prepared_transactions')::int4 = 0 then
        perform pg_notify('tickwheel', jsonb_build_object('old', true, 'kinds', jsonb_build_array(kind))::text);
    end if;
    return tickwheel.ref_of(stored);
end
$$;

revoke all on function tickwheel.printable, tickwheel.base36, tickwheel.ref_of, tickwheel.wrong_meta, tickwheel.add_job
    from public;
