//! All series, on many lanes through one gateway.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::cuts::judge::Ending;
use crate::cuts::lane::Lane;
use crate::cuts::series::{Part, Series};
use crate::cuts::service::{self, Form, Ledger};
use crate::support::process::Home;

/// How many cases are under way at once.
const LANES: usize = 12;
/// In how many parts a series is divided.
const PARTS: usize = 4;
/// A request has at least so many bytes, so a series of it has as many cases.
const REQUEST_BYTES: usize = 150;

type Tally = BTreeMap<(String, Ending), usize>;

/// Cuts everything, and counts how the cases of each series ended.
fn cut_everything(forms: &[Form], is_http2: bool) -> Tally {
    let ledger = Ledger::default();
    let service = if is_http2 { service::http2(&ledger) } else { service::http1(&ledger) };
    let lanes: Vec<Lane> =
        (0..LANES).map(|number| Lane::new(number, service, &ledger, is_http2)).collect();
    let home = Home::new();
    let configs: String = lanes.iter().map(Lane::config).collect();
    home.configure(
        service,
        &format!("[breaker]\nenabled = false\n[log]\nlevel = 'error'\n{configs}"),
    );
    let gateway = home.start();
    let parts: Vec<Part> =
        Series::all(forms).into_iter().flat_map(|series| series.parts(PARTS)).collect();
    let (parts, tally) = (Arc::new(Mutex::new(parts)), Arc::new(Mutex::new(Tally::new())));
    let workers = lanes.into_iter().map(|lane| {
        let (parts, tally, address) = (Arc::clone(&parts), Arc::clone(&tally), gateway.address);
        std::thread::spawn(move || {
            loop {
                let Some(part) = parts.lock().unwrap().pop() else { return };
                for ending in lane.work(address, part) {
                    *tally.lock().unwrap().entry((part.series.name(), ending)).or_default() += 1;
                }
            }
        })
    });
    let workers: Vec<_> = workers.collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    // An effect that came late would be a second one.
    for (key, effects) in ledger.counts() {
        assert_eq!(effects, 1, "{key}");
    }
    let tally = std::mem::take(&mut *tally.lock().unwrap());
    for ((series, ending), count) in &tally {
        println!("{series}: {ending:?} {count}");
    }
    println!("{} cases", tally.values().sum::<usize>());
    tally
}

/// How many cases of the series that begin so ended in a way.
fn count(tally: &Tally, series: &str, ending: Option<Ending>) -> usize {
    let wanted = |(name, of): &(String, Ending)| {
        name.starts_with(series) && ending.is_none_or(|ending| ending == *of)
    };
    tally.iter().filter(|(of, _)| wanted(of)).map(|(_, count)| count).sum()
}

#[test]
fn h22_h31_wherever_http1_is_cut_nothing_happens_twice_and_nothing_cut_is_stored() {
    let forms = [Form::Length, Form::Trailer, Form::Informed, Form::Ended10, Form::Ended11];
    let tally = cut_everything(&forms, false);
    for of in ["closed-new", "closed-used", "reset-new", "reset-used"] {
        let request = count(&tally, &format!("request-{of}"), None);
        assert!(request > REQUEST_BYTES, "{of}: {request}");
        for form in forms {
            let response = count(&tally, &format!("{}-{of}", form.name()), None);
            assert!(response > 50, "{of} {form:?}: {response}");
        }
    }
    // A used connection that was closed before the request costs nothing.
    assert_eq!(count(&tally, "before-closed-used", Some(Ending::Stored)), 25);
    assert_eq!(count(&tally, "before-reset-used", Some(Ending::Stored)), 25);
    // What only the end of its connection ends: never stored of HTTP/1.1, and of HTTP/1.0 not
    // after a reset.
    assert_eq!(count(&tally, "ended-1.1", Some(Ending::Stored)), 0);
    assert_eq!(count(&tally, "ended-1.0-reset", Some(Ending::Shortened)), 0);
}

#[test]
fn h22_h31_wherever_http2_is_cut_nothing_happens_twice_and_nothing_cut_is_stored() {
    let tally = cut_everything(&[Form::Length, Form::Trailer], true);
    for of in ["closed-new", "closed-used", "reset-new", "reset-used"] {
        let request = count(&tally, &format!("request-{of}"), None);
        assert!(request > REQUEST_BYTES, "{of}: {request}");
    }
    assert_eq!(count(&tally, "before-closed-used", Some(Ending::Stored)), 25);
    assert_eq!(count(&tally, "before-reset-used", Some(Ending::Stored)), 25);
}
