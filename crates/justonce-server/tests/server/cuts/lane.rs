//! A line of its own through one gateway: a route, an upstream, and one case at a time.

use std::net::SocketAddr;

use crate::cuts::judge::{Case, Ending};
use crate::cuts::line::Line;
use crate::cuts::series::{Part, Series};
use crate::cuts::service::{Form, Ledger};
use crate::support::client::Call;
use crate::support::upstream::Message;

/// The body of each request.
const BODY: &str = "{\"amount\": 5, \"currency\": \"eur\", \"to\": \"bob\"}";

/// A line with its own place in the configuration.
pub(crate) struct Lane {
    name: String,
    line: Line,
    ledger: Ledger,
    is_http2: bool,
}

impl Lane {
    pub(crate) fn new(number: usize, service: SocketAddr, ledger: &Ledger, is_http2: bool) -> Self {
        let (name, ledger) = (format!("l{number}"), ledger.clone());
        Self { name, line: Line::to(service), ledger, is_http2 }
    }

    pub(crate) fn config(&self) -> String {
        let Self { name, line, is_http2, .. } = self;
        let protocol = if *is_http2 { "http2" } else { "http1" };
        format!(
            "[upstreams.{name}]\nurls = 'http://{}'\nprotocol = '{protocol}'\n\
             [[route]]\nmatch = 'POST /{name}/*'\nname = '{name}'\nupstream = '{name}'\n\
             key = 'required'\n",
            line.address
        )
    }

    /// All cases of a part, and how each ended.
    pub(crate) fn work(&self, gateway: SocketAddr, part: Part) -> Vec<Ending> {
        let mut endings = Vec::new();
        for number in (part.first..).step_by(part.step) {
            let Some(case) = self.run(gateway, part.series, number) else { break };
            endings.push(case.judge());
            if case.cut.is_none() {
                // Everything has passed: there is nothing left to cut.
                assert_eq!(case.first.map(|first| first.status()), Some(201));
                break;
            }
        }
        endings
    }

    fn run(&self, gateway: SocketAddr, series: Series, number: usize) -> Option<Case> {
        let cut = series.cut(number)?;
        let key = format!("{}-{number}", series.name());
        // However the last case has left the line: each begins alike.
        self.line.close_all();
        if series.reuses {
            let warm = self.pay(gateway, Form::Length, &format!("{key}-warm"));
            assert_eq!(warm.status(), 201, "{warm:?}");
        }
        self.line.arm(cut);
        let first = last_answer(&mut self.send(gateway, series.form, &key));
        let cut = self.line.disarm();
        if let Some(cut) = cut {
            assert_eq!(cut.was_used, series.reuses, "{key}: another connection was cut");
        }
        let before = self.ledger.of(&key);
        let retry = self.pay(gateway, series.form, &key);
        let path = format!("/.well-known/idempotency/{key}?path=/{}/a", self.name);
        let state = Call::ask(gateway, &path).json()["state"].as_str().unwrap().to_owned();
        let (after, is_http2) = (self.ledger.of(&key), self.is_http2);
        Some(Case { series, is_http2, cut, first, before, retry, after, state })
    }

    fn pay(&self, gateway: SocketAddr, form: Form, key: &str) -> Message {
        last_answer(&mut self.send(gateway, form, key)).expect("the gateway closed the connection")
    }

    fn send(&self, gateway: SocketAddr, form: Form, key: &str) -> Call {
        let request = format!("POST /{}/{}", self.name, form.name());
        Call::send(gateway, &request, &[("idempotency-key", key)], BODY)
    }
}

/// The answer, behind those that are only informational.
fn last_answer(call: &mut Call) -> Option<Message> {
    loop {
        let answer = call.try_answer()?;
        if answer.status() >= 200 {
            return Some(answer);
        }
    }
}
