//! What steps, listings and gauges cost does not grow with the table, and no plan depends on what
//! the server knows about it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use justonce_core::store::{ListQuery, Maintenance, Page, Records};
use justonce_core::{
    Action, Answer, Engine, Failure, FailureKind, Fence, OnLapsed, Operation, Outcome, StateName,
    Step, UnknownReason,
};
use justonce_postgres::PostgresStore;
use justonce_testbed::PostgresOptions;

use crate::stage::{Stage, begin, complete, hold, operation, rerun};
use crate::together::at_once;

/// The table when it is small, and when it is large. `JUSTONCE_LARGE_TABLE` makes it larger: at
/// 10000000 it takes some minutes.
const SMALL: u64 = 10_000;
const LARGE: u64 = 200_000;
/// How many records there are of each kind that a listing must find among all others.
const FEW: u64 = 40;
/// How many times more pages a statement may read when the table is large: its indexes have a level
/// or two more.
const GROWS_BY: f64 = 2.0;
/// Pages that do not count: the catalogue, and what a statement finds changed on its way.
const ALLOWED_PAGES: f64 = 20.0;

/// Makes `$3` copies of the record with a key, in the order of nothing.
const COPY: &str = "
    CREATE PROCEDURE copy(of_key text, kind text, copies bigint) LANGUAGE plpgsql AS $$
    DECLARE
        names text;
        changed text;
    BEGIN
        SELECT string_agg(quote_ident(column_name), ', '),
               string_agg(CASE column_name
                   WHEN 'id' THEN 'sha256(($1 || number)::bytea)'
                   WHEN 'key' THEN '$1 || number'
                   WHEN 'fence' THEN 'nextval(''justonce.fences'')'
                   ELSE quote_ident(column_name) END, ', ')
            INTO names, changed FROM information_schema.columns
            WHERE table_schema = 'justonce' AND table_name = 'records';
        EXECUTE format('INSERT INTO justonce.records (%s) SELECT %s FROM justonce.records, '
            'generate_series(1, $3) AS number WHERE key = $2', names, changed)
            USING kind, of_key, copies;
    END $$";

/// A server that learns nothing about its tables by itself.
fn ignorant() -> PostgresOptions {
    let settings = [("autovacuum", "off"), ("pg_stat_statements.max", "5000")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    PostgresOptions { settings, ..PostgresOptions::default() }
}

fn long(name: &str, rule: OnLapsed) -> Operation {
    operation(name, rule, Duration::from_secs(900))
}

/// One record of each kind.
async fn seed(stage: &Stage) {
    let done = hold("done");
    let fence = stage.claim(&done).await;
    stage.complete(&done, fence).await;
    stage.claim(&long("live", OnLapsed::Hold)).await;
    stage.claim(&long("free", OnLapsed::Rerun)).await;
    stage.claim(&operation("lapsed", OnLapsed::Hold, Duration::from_millis(10))).await;
    let abandoned = hold("abandoned");
    let fence = stage.claim(&abandoned).await;
    let abandon = Action::Abandon(fence, UnknownReason::Reported.into());
    stage.store.apply(&Step::new(abandoned.id(), abandon)).await.unwrap();
    let failed = hold("failed");
    let fence = stage.claim(&failed).await;
    let failure =
        Failure { outcome: Outcome::bytes("no"), kind: FailureKind::Permanent, jitter: 0 };
    stage.store.apply(&Step::new(failed.id(), Action::Fail(fence, failure))).await.unwrap();
    let over = "SELECT count(*) FROM justonce.records \
                WHERE state = 'in_progress' AND due <= justonce.millis_1()";
    while stage.psql(over) == "0" {}
}

fn copy(stage: &Stage, of: &str, kind: &str, copies: u64) {
    stage.psql(&format!("CALL copy('{of}', '{kind}', {copies})"));
}

/// Everything that is asked of a store again and again, as often as is said.
struct Work<'a> {
    stage: &'a Stage,
    engine: Engine,
    number: u32,
}

impl Work<'_> {
    async fn all(&mut self) -> Vec<(StateName, usize)> {
        let mut found = Vec::new();
        for state in StateName::ALL.into_iter().filter(|state| *state != StateName::Absent) {
            found.push((state, self.list(Some(state)).await.records.len()));
        }
        self.list(None).await;
        self.stage.store.stats().await.unwrap();
        self.stage.store.sweep(10).await.unwrap();
        self.unknown().await;
        self.steps().await;
        found
    }

    async fn list(&self, state: Option<StateName>) -> Page {
        let query = ListQuery { state, limit: 500, ..ListQuery::default() };
        self.stage.store.list(&query).await.unwrap()
    }

    async fn unknown(&self) {
        let (id, scope) = (hold("abandoned").id(), hold("abandoned").scope().clone());
        let old = self.engine.is_unknown_for(id, scope, Duration::from_millis(1)).await.unwrap();
        assert!(old, "it is unknown");
        self.stage.store.get(&id).await.unwrap().unwrap();
    }

    /// Claims, completions and duplicates, together and alone.
    async fn steps(&mut self) {
        self.number += 1;
        let store = Arc::new(self.stage.store.clone());
        for named in [hold as fn(&str) -> Operation, rerun] {
            let operations: Vec<_> =
                (0..30).map(|at| named(&format!("work-{}-{at}", self.number))).collect();
            let begins = operations.iter().map(|one| (Arc::clone(&store), begin(one)));
            let mut fences: Vec<Fence> = Vec::new();
            for answer in at_once(begins.collect::<Vec<_>>()).await {
                let Answer::Claimed(claimed) = answer.unwrap() else { panic!("no claim") };
                fences.push(claimed.fence);
            }
            let renew = Step::new(operations[0].id(), Action::Renew(fences[0]));
            store.apply(&renew).await.unwrap();
            let completions = operations
                .iter()
                .zip(&fences)
                .map(|(operation, fence)| (Arc::clone(&store), complete(operation, *fence)));
            for answer in at_once(completions.collect::<Vec<_>>()).await {
                assert_eq!(answer.unwrap(), Answer::Applied);
            }
            let again = store.apply(&begin(&operations[0])).await.unwrap();
            assert!(again.completed().is_some());
            let alone = named(&format!("alone-{}", self.number));
            let fence = self.stage.claim(&alone).await;
            assert_eq!(self.stage.complete(&alone, fence).await, Answer::Applied);
            self.number += 1;
        }
    }
}

/// How many pages each statement reads on average, and its text, by its number. Of those that go
/// together it is for each: how many do is not the same every time.
fn pages(stage: &Stage) -> BTreeMap<String, (f64, String)> {
    let sql = "SELECT queryid, sum(shared_blks_hit + shared_blks_read)::float8 \
               / sum(CASE WHEN query LIKE '%unnest(%' THEN rows ELSE calls END), \
               min(translate(query, E'\\n|', '  ')) FROM pg_stat_statements \
               WHERE query LIKE '%\"justonce\".%' GROUP BY 1";
    let rows = stage.psql(sql);
    let split = |row: &str| {
        let [number, pages, query] = row.split('|').collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        (number.to_owned(), (pages.parse().unwrap(), query.to_owned()))
    };
    rows.lines().map(split).collect()
}

fn large() -> u64 {
    let set = std::env::var("JUSTONCE_LARGE_TABLE");
    set.map_or(LARGE, |set| set.parse().expect("a number of records"))
}

/// The plans are made while the table is empty, and no statistics ever correct them: the worst that
/// can be. Afterwards the same with statistics.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_costs_more_when_the_table_has_grown() {
    let stage = Stage::with(ignorant()).await;
    stage.psql("CREATE EXTENSION pg_stat_statements");
    stage.psql(COPY);
    let engine = Engine::new(stage.store.clone());
    let mut work = Work { stage: &stage, engine, number: 0 };
    seed(&stage).await;
    for _ in 0..3 {
        work.all().await;
    }
    for kind in ["live", "free", "abandoned", "failed"] {
        copy(&stage, kind, kind, FEW);
    }
    let mut measured = Vec::new();
    for (count, analyzed) in [(SMALL, false), (large() - SMALL, false), (0, true)] {
        copy(&stage, "done", &format!("done-{count}-"), count);
        if analyzed {
            stage.psql("VACUUM ANALYZE justonce.records");
        }
        // What has ended while the table was filled is passed by once.
        work.all().await;
        stage.psql("SELECT pg_stat_statements_reset()");
        for _ in 0..5 {
            let found: BTreeMap<_, _> = work.all().await.into_iter().collect();
            let few = usize::try_from(FEW).unwrap();
            assert_eq!(found[&StateName::Unknown], few + 2, "the lapsed one is among them");
            assert_eq!(found[&StateName::Failed], few + 1);
            assert_eq!(found[&StateName::InProgress], 2 * (few + 1));
        }
        measured.push(pages(&stage));
    }
    let [small, large, analyzed] = &measured[..] else { unreachable!() };
    for (number, (at_first, query)) in small {
        for (then, when) in [(large, "large"), (analyzed, "large, with statistics")] {
            let now = then.get(number).map(|(pages, _)| *pages);
            let now = now.unwrap_or_else(|| panic!("not asked when {when}: {query}"));
            let limit = at_first.max(ALLOWED_PAGES) * GROWS_BY;
            assert!(now <= limit, "{at_first} pages became {now} when {when}: {query}");
        }
    }
    assert!(small.len() > 10, "{} statements", small.len());
}

/// The gauges that somebody must act on are exact, however large the table is.
#[tokio::test(flavor = "multi_thread")]
async fn what_needs_somebody_is_counted_exactly_in_a_large_table() {
    let stage = Stage::with(ignorant()).await;
    stage.psql(COPY);
    seed(&stage).await;
    for kind in ["live", "free", "abandoned", "failed"] {
        copy(&stage, kind, kind, FEW);
    }
    let done = 60_000;
    copy(&stage, "done", "done-", done);
    let stats = stage.store.stats().await.unwrap();
    assert_eq!(stats.unknown.count, FEW + 1);
    assert_eq!(stats.failed.count, FEW + 1);
    assert_eq!(stats.in_progress.count, 2 * (FEW + 1) + 1);
    let estimate = stats.completed.count;
    assert!((done / 2..done * 2).contains(&estimate), "{estimate} of {done}");
}

/// All pages of a listing together find what there is, each once, in the order of their names.
#[tokio::test(flavor = "multi_thread")]
async fn pages_follow_each_other_without_a_gap() {
    let stage = Stage::with(ignorant()).await;
    stage.psql(COPY);
    seed(&stage).await;
    for kind in ["live", "free", "abandoned", "failed", "lapsed", "done"] {
        copy(&stage, kind, kind, FEW);
    }
    let few = usize::try_from(FEW).unwrap() + 1;
    let expected = [
        (None, 6 * few),
        (Some(StateName::Unknown), 2 * few),
        (Some(StateName::InProgress), 2 * few),
        (Some(StateName::Failed), few),
        (Some(StateName::Completed), few),
        (Some(StateName::Tombstone), 0),
    ];
    for scope in [None, Some(hold("a").scope().clone())] {
        for (state, count) in expected {
            for limit in [1, 7, 1000] {
                let ids = ids(&stage.store, state, scope.clone(), limit).await;
                assert!(ids.is_sorted_by(|one, next| one < next), "{state:?} by {limit}");
                assert_eq!(ids.len(), count, "{state:?} by {limit}");
            }
        }
    }
}

async fn ids(
    store: &PostgresStore,
    state: Option<StateName>,
    scope: Option<justonce_core::Scope>,
    limit: usize,
) -> Vec<justonce_core::RecordId> {
    let mut query = ListQuery { state, scope, limit, ..ListQuery::default() };
    let mut ids = Vec::new();
    loop {
        let page = store.list(&query).await.unwrap();
        assert!(page.records.len() <= limit && page.damaged.is_empty());
        ids.extend(page.records.iter().map(|record| record.id));
        if page.next.is_none() {
            return ids;
        }
        query.after = page.next;
    }
}
