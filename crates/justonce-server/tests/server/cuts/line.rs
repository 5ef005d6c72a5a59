//! A line between the gateway and a service that is cut where a test says.
//!
//! What was sent up to there arrives. Then both ends hear the same: the end of the connection, or a
//! reset.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use socket2::SockRef;

use crate::support::client::until;

/// Whose bytes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Request,
    Response,
}

/// What both ends hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// FIN.
    Closed,
    /// RST.
    Reset,
}

/// Where the line is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Before anything more is sent: an open connection at once, a new one when it is accepted.
    Before(End),
    /// When so many bytes have arrived; with 0, when the first one waits to be forwarded.
    After(Direction, usize, End),
}

/// A cut that has happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// Whether the connection had carried anything before the cut was asked for.
    pub(crate) was_used: bool,
    /// How many bytes the service was sent since then.
    pub(crate) requested: usize,
}

/// A line on an address of its own.
pub(crate) struct Line {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    cut: Option<Cut>,
    done: Option<Done>,
    requested: usize,
    open: Vec<Weak<Pair>>,
}

/// One connection of the gateway, and its other half.
struct Pair {
    gateway: TcpStream,
    service: TcpStream,
    /// It was cut: nothing is forwarded any more.
    is_over: AtomicBool,
    /// It has carried something while no cut was asked for.
    was_used: AtomicBool,
    /// The last field: it goes when the sockets have gone.
    held: Arc<()>,
}

impl Line {
    pub(crate) fn to(service: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let of_line = Arc::clone(&state);
        std::thread::spawn(move || {
            for gateway in listener.incoming().map_while(Result::ok) {
                if let Some(end) = of_line.lock().unwrap().take_before() {
                    refuse(gateway, end);
                    continue;
                }
                let state = Arc::clone(&of_line);
                std::thread::spawn(move || Pair::connect(gateway, service).carry(&state));
            }
        });
        Self { address, state }
    }

    /// Asks for a cut of what is sent from now on.
    pub(crate) fn arm(&self, cut: Cut) {
        let mut state = self.state.lock().unwrap();
        state.requested = 0;
        let open = state.open();
        let Cut::Before(end) = cut else {
            state.cut = Some(cut);
            return;
        };
        if open.is_empty() {
            state.cut = Some(cut);
            return;
        }
        open.iter().for_each(|pair| pair.cut(end));
        state.done = Some(Done { was_used: true, requested: 0 });
        drop(state);
        if end == End::Reset {
            // A reset is sent once nobody holds the connection any more.
            let held: Vec<Weak<()>> = open.iter().map(|pair| Arc::downgrade(&pair.held)).collect();
            drop(open);
            let left = || held.iter().filter(|held| held.strong_count() > 0).count();
            until("the reset", left, |left| *left == 0);
        }
    }

    /// Asks for no cut any more: the one that was asked for, if it has happened.
    pub(crate) fn disarm(&self) -> Option<Done> {
        let mut state = self.state.lock().unwrap();
        state.cut = None;
        state.done.take()
    }

    /// Ends all connections, so that the next request needs a new one.
    pub(crate) fn close_all(&self) {
        let mut state = self.state.lock().unwrap();
        state.open().iter().for_each(|pair| pair.cut(End::Closed));
        state.open.clear();
    }
}

impl State {
    fn open(&mut self) -> Vec<Arc<Pair>> {
        let open: Vec<Arc<Pair>> = self.open.iter().filter_map(Weak::upgrade).collect();
        let live = open.into_iter().filter(|pair| !pair.is_over()).collect::<Vec<_>>();
        self.open = live.iter().map(Arc::downgrade).collect();
        live
    }

    /// How a new connection ends that must not even begin.
    fn take_before(&mut self) -> Option<End> {
        let Some(Cut::Before(end)) = self.cut else { return None };
        self.cut = None;
        self.done = Some(Done { was_used: false, requested: 0 });
        Some(end)
    }

    /// How much may be forwarded, and what happens after that.
    fn allowed(&self, direction: Direction) -> (usize, Option<End>) {
        match self.cut {
            Some(Cut::After(of, left, end)) if of == direction => (left, Some(end)),
            _ => (usize::MAX, None),
        }
    }

    /// So many bytes were forwarded.
    fn passed(&mut self, direction: Direction, count: usize) {
        if direction == Direction::Request {
            self.requested += count;
        }
        if let Some(Cut::After(of, left, _)) = &mut self.cut
            && *of == direction
        {
            *left -= count;
        }
    }
}

impl Pair {
    fn connect(gateway: TcpStream, service: SocketAddr) -> Arc<Self> {
        let service = TcpStream::connect(service).unwrap();
        service.set_nodelay(true).unwrap();
        gateway.set_nodelay(true).unwrap();
        let (is_over, was_used) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { gateway, service, is_over, was_used, held: Arc::default() })
    }

    fn carry(self: Arc<Self>, state: &Arc<Mutex<State>>) {
        state.lock().unwrap().open.push(Arc::downgrade(&self));
        let (pair, of_line) = (Arc::clone(&self), Arc::clone(state));
        std::thread::spawn(move || pair.forward(Direction::Response, &of_line));
        self.forward(Direction::Request, state);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn forward(&self, direction: Direction, state: &Mutex<State>) {
        let (mut from, mut to) = match direction {
            Direction::Request => (&self.gateway, &self.service),
            Direction::Response => (&self.service, &self.gateway),
        };
        let mut buffer = [0; 4096];
        // It waits without taking anything: a cut may be asked for meanwhile.
        while let Ok(1..) = from.peek(&mut buffer[..1]) {
            if self.is_over() {
                // What is left unread would turn an end into a reset.
                let _ = from.read(&mut buffer);
                continue;
            }
            let mut state = state.lock().unwrap();
            let (allowed, end) = state.allowed(direction);
            let count = from.read(&mut buffer[..allowed.min(4096)]).unwrap_or_default();
            if allowed > 0 && (count == 0 || to.write_all(&buffer[..count]).is_err()) {
                break;
            }
            state.passed(direction, count);
            match end {
                Some(end) if count == allowed => {
                    let was_used = self.was_used.load(Ordering::SeqCst);
                    state.done = Some(Done { was_used, requested: state.requested });
                    state.cut = None;
                    self.cut(end);
                }
                _ if state.cut.is_none() => self.was_used.store(true, Ordering::SeqCst),
                _ => {}
            }
        }
        if !self.is_over() {
            // The end of one side is that of the other.
            let _ = to.shutdown(Shutdown::Write);
        }
    }

    fn cut(&self, end: End) {
        self.is_over.store(true, Ordering::SeqCst);
        for half in [&self.gateway, &self.service] {
            match end {
                End::Closed => {
                    let _ = half.shutdown(Shutdown::Write);
                }
                End::Reset => {
                    let _ = SockRef::from(half).set_linger(Some(Duration::ZERO));
                    // This only wakes who reads it: the reset comes when both have let go.
                    let _ = half.shutdown(Shutdown::Read);
                }
            }
        }
    }
}

fn refuse(gateway: TcpStream, end: End) {
    if end == End::Reset {
        SockRef::from(&gateway).set_linger(Some(Duration::ZERO)).unwrap();
    }
    drop(gateway);
}
