//! Chapter: lists show each record of a query once, in order, page by page.

use std::sync::Arc;
use std::time::Duration;

use justonce_core::store::{ListQuery, Maintenance, Summary};
use justonce_core::{RecordId, Scope, StateName};

use super::backend::Backend;
use super::deviation::{Deviation, Verdict, ensure, ensure_eq};
use super::population::Population;
use super::runner::Stage;

/// Under how many policies each state is listed.
const POLICIES: usize = 2;
/// The sizes of pages: none is taken for one, and the largest possible for the limit.
const PAGES: [usize; 5] = [0, 1, 7, 1000, usize::MAX];

/// Every combination of filters and page sizes lists just the records that match, in the order of
/// their names.
///
/// # Errors
///
/// If a record is missing, comes twice, or should not be there.
pub async fn listing<B: Backend>(backend: B) -> Verdict {
    let stage = Arc::new(Stage::new(backend)?);
    let population = Population::settle(&stage, POLICIES).await?;
    let mut lengths = std::collections::BTreeSet::new();
    for query in queries(&stage, &population)? {
        let expected = expected(&population, &query);
        let listed = all_pages(&*stage.store, &query, population.runs.len()).await?;
        ensure_eq!(listed, expected, "{query:?}");
        lengths.insert(listed.len());
    }
    ensure!(lengths.len() > 10, "the filters of the suite tell too little apart");
    one_by_one(&stage, &population).await
}

/// A query for one record finds it or not, as the other filters say.
async fn one_by_one<B: Backend>(stage: &Stage<B>, population: &Population) -> Verdict {
    let absent = RecordId::from_bytes([0x5a; 32]);
    let ids = population.runs.iter().map(|run| run.oracle.id).chain([absent]);
    for id in ids {
        for state in std::iter::once(None).chain(StateName::ALL.map(Some)) {
            let query = ListQuery { state, only: Some(id), limit: 1, ..ListQuery::default() };
            let mut expected = expected(population, &query);
            expected.retain(|summary| summary.id == id);
            let page = stage.store.list(&query).await?;
            ensure_eq!(page.records, expected, "{query:?}");
            ensure!(page.next.is_none(), "one record has no next page: {query:?}");
        }
    }
    Ok(())
}

fn expected(population: &Population, query: &ListQuery) -> Vec<Summary> {
    let mut expected: Vec<Summary> = population
        .runs
        .iter()
        .filter_map(|run| query.matches(run.oracle.id, run.oracle.entry()?, population.now))
        .collect();
    expected.sort_by_key(|summary| summary.id);
    expected
}

fn queries<B: Backend>(
    stage: &Stage<B>,
    population: &Population,
) -> Result<Vec<ListQuery>, Deviation> {
    let tenant = || Scope::builder().tenant("tenant-1");
    let scopes = [
        None,
        Some(Scope::global()),
        Some(tenant().build()?),
        Some(tenant().operation("charge").build()?),
        Some(Scope::builder().operation("refund").build()?),
        Some(Scope::builder().tenant("tenant-").build()?),
    ];
    let states = std::iter::once(None).chain(StateName::ALL.map(Some));
    let ages = ages(stage, population);
    let mut queries = Vec::new();
    for state in states {
        for scope in &scopes {
            for unchanged_for in &ages {
                for limit in PAGES {
                    queries.push(ListQuery {
                        state,
                        scope: scope.clone(),
                        unchanged_for: *unchanged_for,
                        limit,
                        after: None,
                        only: None,
                    });
                }
            }
        }
    }
    Ok(queries)
}

/// Ages that tell the records apart. On a clock that stands still, one of them is the very age of
/// a record.
fn ages<B: Backend>(stage: &Stage<B>, population: &Population) -> Vec<Option<Duration>> {
    let mut ages = vec![
        None,
        Some(Duration::ZERO),
        Some(stage.setting.lease * 50),
        Some(stage.setting.much_later),
    ];
    if stage.setting.slack.is_zero() {
        let changed = population
            .runs
            .iter()
            .filter_map(|run| run.oracle.entry()?.record())
            .map(|record| population.now.since(record.changed_at));
        let exact = changed.filter(|age| *age > stage.setting.lease).min();
        ages.push(exact);
        ages.push(exact.map(|age| age + stage.setting.tick));
    }
    ages
}

/// Follows the pages to the end.
async fn all_pages<S: Maintenance>(
    store: &S,
    query: &ListQuery,
    records: usize,
) -> Result<Vec<Summary>, Deviation> {
    let mut query = query.clone();
    let mut listed = Vec::new();
    // Pages may be short, even empty, but each looks at one more record at least.
    for _ in 0..=records {
        let page = store.list(&query).await?;
        ensure!(
            page.records.len() <= query.page_size(),
            "a page of {} records for {query:?}",
            page.records.len()
        );
        listed.extend(page.records);
        match page.next {
            None => return Ok(listed),
            next => query.after = next,
        }
    }
    Err(Deviation::new(format!("the pages never end: {query:?}")))
}
