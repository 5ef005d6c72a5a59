//! Whether three ledgers agree with each other, and with what the clients were told.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use crate::ledger::{Effect, Line, read};
use crate::order::Reply;
use crate::service::LEDGER;
use crate::trade::Trade;

/// The lines of the three ledgers.
pub type Books = BTreeMap<Trade, Vec<Line>>;
/// What the clients were told, by order.
pub type Replies = BTreeMap<String, Reply>;

/// Reads the ledgers of the three services, each in a directory of its own name.
///
/// # Errors
///
/// If one cannot be read.
pub fn books(directory: &Path) -> io::Result<Books> {
    let book = |trade: Trade| Ok((trade, read(&directory.join(trade.to_string()).join(LEDGER))?));
    Trade::ALL.into_iter().map(book).collect()
}

/// The orders that appear in any ledger.
#[must_use]
pub fn orders(books: &Books) -> BTreeSet<&str> {
    books.values().flatten().map(|line| line.order.as_str()).collect()
}

/// Everything that is wrong: what happened twice, what is half done, and what is other than a
/// client was told. Without replies, only the ledgers are compared.
#[must_use]
pub fn check(books: &Books, replies: Option<&Replies>) -> Vec<String> {
    let mut wrong: Vec<String> =
        books.iter().flat_map(|(trade, lines)| repeated(*trade, lines)).collect();
    for order in orders(books) {
        let standing = Trade::ALL.map(|trade| standing(books, trade, order));
        wrong.extend(standing.iter().filter_map(|entries| entries.as_ref().err()).cloned());
        let standing = standing.map(|entries| entries.unwrap_or_default());
        let done = standing.iter().filter(|entry| entry.is_some()).count();
        if done != 0 && done != standing.len() {
            wrong.push(format!("{order} is half done: {standing:?}"));
        }
        match replies.map(|replies| replies.get(order)) {
            Some(None) => wrong.push(format!("{order}: its client was told nothing")),
            Some(Some(reply)) => wrong.extend(told(reply, order, standing)),
            None => {}
        }
    }
    let unheard = replies.into_iter().flatten().filter(|(order, reply)| {
        !orders(books).contains(order.as_str()) && matches!(reply, Reply::Done { .. })
    });
    wrong.extend(unheard.map(|(order, _)| format!("{order}: nothing was done")));
    wrong
}

/// Keys under which something happened more than once.
fn repeated(trade: Trade, lines: &[Line]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let again = lines.iter().filter(|line| !seen.insert(&line.key));
    again
        .map(|line| format!("{}: {trade} has one key twice, entry {}", line.order, line.entry))
        .collect()
}

/// The entry of an order that is done and not undone.
fn standing(books: &Books, trade: Trade, order: &str) -> Result<Option<u64>, String> {
    let lines = books.get(&trade).into_iter().flatten().filter(|line| line.order == order);
    let (mut done, mut undone, mut void) = (None, false, BTreeSet::new());
    for line in lines {
        let undoes_it =
            |done: &Option<&Line>| done.is_some_and(|done| line.undoes.as_ref() == Some(&done.key));
        match line.effect {
            Effect::Done if done.is_some() => return Err(format!("{order}: {trade} did it twice")),
            Effect::Done if void.contains(&Some(&line.key)) => {
                return Err(format!("{order}: {trade} did what was void"));
            }
            Effect::Done => done = Some(line),
            Effect::Undone if undone => return Err(format!("{order}: {trade} undid it twice")),
            Effect::Undone if undoes_it(&done) => undone = true,
            Effect::Undone => return Err(format!("{order}: {trade} undid what it had not done")),
            Effect::Void => drop(void.insert(line.undoes.as_ref())),
        }
    }
    Ok(done.filter(|_| !undone).map(|line| line.entry))
}

/// Whether a client was told what is so.
fn told(reply: &Reply, order: &str, standing: [Option<u64>; 3]) -> Option<String> {
    let is_so = match reply {
        Reply::RolledBack { order: told, .. } => told == order && standing == [None; 3],
        Reply::Done { order: told, entries } => {
            let entries = Trade::ALL.map(|trade| entries.get(&trade).copied());
            told == order && entries == standing && !standing.contains(&None)
        }
    };
    (!is_so)
        .then(|| format!("{order}: the ledgers say {standing:?}, and the client heard {reply:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(entry: u64, effect: Effect, key: &str, undoes: Option<&str>) -> Line {
        let (order, undoes) = ("o".to_owned(), undoes.map(str::to_owned));
        Line { entry, effect, order, key: key.to_owned(), undoes }
    }

    fn done() -> Books {
        Trade::ALL
            .into_iter()
            .map(|trade| (trade, vec![line(1, Effect::Done, "do", None)]))
            .collect()
    }

    fn told_done() -> Replies {
        let entries = Trade::ALL.map(|trade| (trade, 1)).into();
        [("o".to_owned(), Reply::Done { order: "o".to_owned(), entries })].into()
    }

    fn told_undone() -> Replies {
        let (step, why) = ("ship".to_owned(), "no".to_owned());
        [("o".to_owned(), Reply::RolledBack { order: "o".to_owned(), step, why })].into()
    }

    /// The ledgers after some more lines in that of the payment.
    fn with(lines: &[Line]) -> Books {
        let mut books = done();
        books.get_mut(&Trade::Payment).unwrap().extend_from_slice(lines);
        books
    }

    #[test]
    fn what_is_right_is_right() {
        assert_eq!(check(&done(), Some(&told_done())), [""; 0]);
        let mut books = done();
        for lines in books.values_mut() {
            lines.push(line(2, Effect::Undone, "undo", Some("do")));
        }
        assert_eq!(check(&books, Some(&told_undone())), [""; 0]);
        books.insert(Trade::Shipping, vec![line(1, Effect::Void, "undo", Some("do"))]);
        assert_eq!(check(&books, Some(&told_undone())), [""; 0]);
    }

    #[test]
    fn what_is_wrong_is_found() {
        let mut early = done();
        early.insert(
            Trade::Payment,
            vec![line(1, Effect::Void, "undo", Some("do")), line(2, Effect::Done, "do", None)],
        );
        let undone = line(2, Effect::Undone, "undo", Some("do"));
        let twice = line(3, Effect::Undone, "again", Some("do"));
        for (books, found) in [
            (with(&[line(2, Effect::Done, "do", None)]), "one key twice"),
            (with(&[line(2, Effect::Done, "other", None)]), "did it twice"),
            (with(std::slice::from_ref(&undone)), "half done"),
            (with(&[undone, twice]), "undid it twice"),
            (with(&[line(2, Effect::Undone, "undo", Some("what"))]), "had not done"),
            (early, "void"),
        ] {
            let wrong = check(&books, None);
            assert!(wrong.iter().any(|wrong| wrong.contains(found)), "{found}: {wrong:?}");
        }
    }

    #[test]
    fn a_client_that_was_told_something_else_is_found() {
        for (books, replies) in
            [(done(), told_undone()), (done(), Replies::new()), (Books::new(), told_done())]
        {
            assert_eq!(check(&books, Some(&replies)).len(), 1, "{books:?} {replies:?}");
        }
        let entries = Trade::ALL.map(|trade| (trade, 2)).into();
        let other = Reply::Done { order: "o".to_owned(), entries };
        assert_eq!(check(&done(), Some(&[("o".to_owned(), other)].into())).len(), 1);
    }
}
