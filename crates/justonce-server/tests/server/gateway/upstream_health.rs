//! Health checks of a running gateway.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::support::client::{Call, pay, until};
use crate::support::process::{Gateway, Home};
use crate::support::upstream::Upstream;

use crate::gateway::stage::BODY;

/// A service with a health page.
struct Service {
    address: SocketAddr,
    is_sick: Arc<AtomicBool>,
    paid: Arc<AtomicUsize>,
}

impl Service {
    fn start() -> Self {
        let upstream = Upstream::new();
        let address = upstream.address();
        let (is_sick, paid) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (sick, count) = (Arc::clone(&is_sick), Arc::clone(&paid));
        std::thread::spawn(move || {
            loop {
                let mut connection = upstream.accept();
                let (sick, count) = (Arc::clone(&sick), Arc::clone(&count));
                std::thread::spawn(move || {
                    while let Some(request) = connection.try_read() {
                        let is_check = request.start.starts_with("GET /healthz ");
                        match is_check && sick.load(Ordering::SeqCst) {
                            true => connection.answer("500 Sick", &[], b""),
                            false => connection.answer("201 Created", &[], b""),
                        }
                        count.fetch_add(usize::from(!is_check), Ordering::SeqCst);
                    }
                });
            }
        });
        Self { address, is_sick, paid }
    }

    fn set_sick(&self, is_sick: bool) {
        self.is_sick.store(is_sick, Ordering::SeqCst);
    }

    /// How many payments it got since the last call.
    fn paid(&self) -> usize {
        self.paid.swap(0, Ordering::SeqCst)
    }
}

fn healthy(gateway: &Gateway, service: &Service) -> bool {
    let metrics = Call::get(gateway.admin, "/metrics").text();
    let series = format!(
        "justonce_upstream_healthy{{upstream=\"default\",address=\"http://{}\"}} ",
        service.address
    );
    let line = metrics.lines().find_map(|line| line.strip_prefix(&series));
    line.unwrap_or_else(|| panic!("no {series} in {metrics}")) == "1"
}

#[test]
fn unhealthy_addresses_get_nothing_and_operators_see_them() {
    let (one, other) = (Service::start(), Service::start());
    let home = Home::new();
    let text = |interval: &str| {
        format!(
            "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nstore = 'memory:'\n\
             [upstreams.default]\nurls = ['http://{}', 'http://{}']\n\
             health = {{ path = '/healthz', interval = '{interval}' }}\n",
            one.address, other.address
        )
    };
    let write = |text: String| {
        // In one step: a reload must not read half of it.
        let new = home.path().join("new.toml");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, home.config()).unwrap();
    };
    write(text("50ms"));
    let gateway = home.start();
    let ready = || Call::get(gateway.admin, "/readyz");
    let pays = |count: usize, first: &str| {
        for number in 0..count {
            assert_eq!(pay(gateway.address, &format!("{first}{number}"), BODY).status(), 201);
        }
    };
    assert!(healthy(&gateway, &one) && healthy(&gateway, &other));
    one.set_sick(true);
    until("the first is out", || healthy(&gateway, &one), |healthy| !healthy);
    gateway.log_line("unhealthy");
    one.paid();
    pays(6, "a");
    assert_eq!((one.paid(), other.paid()), (0, 6));
    assert_eq!(ready().text(), "ready\n");

    // While none is healthy, all get requests; replays need none of them.
    other.set_sick(true);
    until("the second is out", || healthy(&gateway, &other), |healthy| !healthy);
    pays(6, "b");
    assert_eq!((one.paid(), other.paid()), (3, 3));
    let answer = ready();
    assert_eq!(answer.status(), 200, "duplicates are still answered");
    assert_eq!(answer.text(), "ready; no address is healthy of: default\n");
    assert!(pay(gateway.address, "a0", BODY).is_replay());

    one.set_sick(false);
    until("the first is back", || healthy(&gateway, &one), |healthy| *healthy);
    pays(6, "c");
    assert_eq!((one.paid(), other.paid()), (6, 0));

    // A reload that says the same keeps what is known; another interval begins anew.
    write(text("50ms") + "[defaults]\nlease = '10s'\n");
    gateway.log_line("new routes are in force");
    assert!(healthy(&gateway, &one) && !healthy(&gateway, &other));
    write(text("1h"));
    gateway.log_line("new routes are in force");
    assert!(healthy(&gateway, &one) && healthy(&gateway, &other));
    let metrics = Call::get(gateway.admin, "/metrics").text();
    let counted = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    let checks = "justonce_health_checks_total{upstream=\"default\",result=";
    assert!(counted(&format!("{checks}\"failed\"}}")) >= 6, "{metrics}");
    assert!(counted(&format!("{checks}\"passed\"}}")) >= 2, "{metrics}");
    let rounds = "justonce_worker_rounds_total{worker=\"health\",result=";
    assert!(counted(&format!("{rounds}\"done\"}}")) >= 4, "{metrics}");
    assert_eq!(counted(&format!("{rounds}\"failed\"}}")), 0);
}
