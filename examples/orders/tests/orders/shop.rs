//! Three services, and order services that come and go beside them.

use std::collections::BTreeMap;

use justonce_orders::check::{Books, Replies, books, check};
use justonce_orders::ledger::Effect;
use justonce_orders::order::{Order, Reply};
use justonce_orders::service::{Faults, Said};
use justonce_orders::trade::Trade;
use justonce_testbed::{PostgresOptions, PostgresServer};
use tempfile::TempDir;

use crate::client::post_until_answered;
use crate::process::Process;

/// Short, so that nobody waits long for an owner that was killed.
const LEASE: &str = "400ms";

/// Which order service it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Saga,
    Phases,
}

/// Who finishes an order whose service was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finisher {
    /// The client, by asking again; there is no completer.
    Client,
    /// The completer; the client asks again when all is over.
    Completer,
}

/// Three services with their ledgers, where an order service keeps what it knows, and what was
/// ordered and heard so far.
pub(crate) struct Shop {
    services: BTreeMap<Trade, Process>,
    /// Those that never answer.
    silent: Vec<Trade>,
    postgres: Option<PostgresServer>,
    directory: TempDir,
    orders: BTreeMap<String, Order>,
    replies: Replies,
}

impl Shop {
    /// Opens it. `faults` says what is wrong with each service.
    pub(crate) fn open(kind: Kind, faults: impl Fn(Trade) -> Faults) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let start = |trade: Trade| {
            let data = directory.path().join(trade.to_string());
            let mut arguments =
                vec![trade.to_string(), "--data".to_owned(), data.display().to_string()];
            let faults = faults(trade);
            for (flag, is_set) in [
                ("--loses-replies", faults.loses_replies),
                ("--never-answers", faults.never_answers),
                ("--forgets-keys", faults.forgets_keys),
            ] {
                arguments.extend(is_set.then(|| flag.to_owned()));
            }
            (trade, Process::start(&arguments, None))
        };
        let services = Trade::ALL.into_iter().map(start).collect();
        let silent = Trade::ALL.into_iter().filter(|trade| faults(*trade).never_answers).collect();
        let postgres = (kind == Kind::Phases)
            .then(|| PostgresServer::start(PostgresOptions::default()).unwrap());
        let (orders, replies) = (BTreeMap::new(), Replies::new());
        Self { services, silent, postgres, directory, orders, replies }
    }

    /// An order service, with or without a completer, that may be made to die at a point.
    pub(crate) fn order_service(&self, finisher: Finisher, dies_at: Option<&str>) -> Process {
        let mut arguments: Vec<String> = match &self.postgres {
            None => {
                let data = self.directory.path().join("orders");
                vec!["saga".into(), "--data".into(), data.display().to_string()]
            }
            Some(server) => vec!["phases".into(), "--database".into(), server.url()],
        };
        for (trade, process) in &self.services {
            arguments.extend([format!("--{trade}"), process.address.to_string()]);
        }
        arguments.extend(["--lease".into(), LEASE.into()]);
        if finisher == Finisher::Completer {
            arguments.extend(["--complete-every".into(), "100ms".into()]);
        }
        Process::start(&arguments, dies_at)
    }

    /// Notes what a client heard. Whatever it is, it must be the same for ever.
    pub(crate) fn heard(&mut self, order: &Order, reply: &Reply) {
        self.orders.insert(order.order.clone(), order.clone());
        let before = self.replies.insert(order.order.clone(), reply.clone());
        assert!(before.is_none_or(|before| before == *reply), "another reply: {reply:?}");
    }

    pub(crate) fn books(&self) -> Books {
        books(self.directory.path()).unwrap()
    }

    /// What is wrong with the ledgers, and with the order service's own table.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let mut wrong = check(&self.books(), Some(&self.replies));
        if let Some(server) = &self.postgres {
            let rows = server.psql("SELECT name, state FROM orders ORDER BY name").unwrap();
            let state = |reply: &Reply| match reply {
                Reply::Done { .. } => "done",
                Reply::RolledBack { .. } => "rolled-back",
            };
            let told =
                self.replies.iter().map(|(order, reply)| format!("{order}|{}", state(reply)));
            let told = told.collect::<Vec<_>>().join("\n");
            if rows != told {
                wrong.push(format!("the table says:\n{rows}\nthe clients heard:\n{told}"));
            }
        }
        wrong
    }

    /// Sends to the services once more what they have done, each under its key, as a network may
    /// that has kept it. They must say what they said the first time, and book nothing.
    pub(crate) async fn everything_arrives_again(&self) {
        let books = self.books();
        for (trade, lines) in books.iter().filter(|(trade, _)| !self.silent.contains(trade)) {
            let address = self.services[trade].address;
            for line in lines.iter().filter(|line| line.effect == Effect::Done) {
                let order = &self.orders[&line.order];
                let heard =
                    post_until_answered(address, trade.does(), &line.key, order, |_| true).await;
                assert_eq!(heard.json::<Said>().unwrap(), Said::Entry(line.entry));
                assert!(heard.replayed);
            }
        }
        assert_eq!(self.books(), books);
    }
}

/// Nothing is wrong with a service.
pub(crate) fn sound(_: Trade) -> Faults {
    Faults::default()
}

/// Every service loses the first answer under each key.
pub(crate) fn loses_replies(_: Trade) -> Faults {
    Faults { loses_replies: true, ..Faults::default() }
}

/// The shipping does what it is told and never says so.
pub(crate) fn silent_shipping(trade: Trade) -> Faults {
    Faults { never_answers: trade == Trade::Shipping, ..Faults::default() }
}
