//! The store fails at every step in turn, in every way: not applied, lost, applied and not heard
//! of, applied twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use justonce_core::engine::Limits;
use justonce_core::memory::MemoryStore;
use justonce_core::store::{Fault, Faulty};
use justonce_core::{Engine, ManualClock, Step};
use justonce_testkit::sagas::{Act, Case, Downstream, Trouble};

use crate::orders::{STEPS, ask, beside, in_order};

/// More steps than any of these sagas takes.
const MOST: usize = 12;

#[tokio::test(start_paused = true)]
async fn whatever_the_store_fails_at_the_saga_ends_whole() {
    let mut hit = 0;
    for refused in [None, Some("ship".to_owned())] {
        for fault in Fault::ALL {
            for at in 0..MOST {
                for make in [in_order, beside] {
                    let (step, act, trouble) = ("none".to_owned(), Act::Step, Trouble::None);
                    let case = Case { step, act, trouble, refused: refused.clone() };
                    let downstream = Downstream::new(case);
                    let count = Arc::new(AtomicUsize::new(0));
                    let steps = Arc::clone(&count);
                    let clock = ManualClock::default();
                    let store = Faulty::new(MemoryStore::new(clock.clone()), move |_: &Step| {
                        let this = steps.fetch_add(1, Ordering::SeqCst) == at;
                        if this { fault } else { Fault::None }
                    });
                    let engine = Engine::builder(store)
                        .limits(Limits::default())
                        .background(tokio::runtime::Handle::current())
                        .build();
                    let mut ended = None;
                    for _ in 0..5 {
                        ended = ask(&make(&downstream), &engine, "order-17").await;
                        if ended.is_some() {
                            break;
                        }
                        clock.advance(std::time::Duration::from_secs(3600));
                    }
                    let told = format!("{fault:?} at {at}, {refused:?}");
                    assert_eq!(ended, Some(refused.is_none()), "{told}");
                    assert_eq!(downstream.wrong(&STEPS, refused.is_none()), None, "{told}");
                    hit += usize::from(count.load(Ordering::SeqCst) > at);
                }
            }
        }
    }
    assert!(hit > 80, "only {hit} faults were met");
}
