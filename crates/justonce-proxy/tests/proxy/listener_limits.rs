//! Clients that are slow, many, or long-winded.

use std::time::Duration;

use justonce_proxy::ListenerSettings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::parts::{
    Gateway, Upstream, listener_settings, read_answer, read_head, read_rest, say, settings, settle,
    shout,
};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const SHORT: Duration = Duration::from_millis(100);

async fn gateway(limits: ListenerSettings) -> (Upstream, Gateway) {
    let upstream = Upstream::fine().await;
    let gateway = Gateway::start(settings(upstream.address), limits);
    (upstream, gateway)
}

#[tokio::test]
async fn slow_heads_are_cut_off_however_they_trickle() {
    let limits = ListenerSettings { header_timeout: SHORT, ..listener_settings() };
    let (upstream, gateway) = gateway(limits).await;

    // Nothing at all, a part of the first line, and a new byte ever so often.
    let mut silent = gateway.connect().await;
    let mut partial = gateway.connect().await;
    say(&mut partial, "GET / HT").await;
    let trickling = gateway.connect().await;
    let (mut read, mut write) = trickling.into_split();
    let trickle = tokio::spawn(async move {
        say(&mut write, "GET / HTTP/1.1\r\nX: ").await;
        while write.write_all(b"x").await.is_ok() {
            tokio::time::sleep(SHORT / 10).await; // tidy: allow-sleep: slowness is the attack
        }
    });
    assert_eq!(read_rest(&mut silent).await, "");
    assert_eq!(read_rest(&mut partial).await, "");
    assert_eq!(read_rest(&mut read).await, "");
    trickle.await.unwrap();

    // The second head of a connection is timed like the first.
    let mut second = gateway.connect().await;
    say(&mut second, GET).await;
    assert_eq!(read_answer(&mut second).await.1, "ok");
    say(&mut second, "GET / HT").await;
    assert_eq!(read_rest(&mut second).await, "");
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn bodies_that_stand_still_are_cut_off() {
    let limits = ListenerSettings { body_timeout: SHORT, ..listener_settings() };
    let upstream = Upstream::start(|mut stream| async move {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let gateway = Gateway::start(settings(upstream.address), limits);
    let mut client = gateway.connect().await;
    say(&mut client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf").await;
    let answer = read_rest(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer:?}");
}

#[tokio::test]
async fn unused_connections_are_closed_and_used_ones_are_not() {
    let limits = ListenerSettings { idle_timeout: SHORT, ..listener_settings() };
    let slow = Upstream::start(|mut stream| async move {
        read_head(&mut stream).await;
        // Longer than a connection may be unused.
        tokio::time::sleep(SHORT * 4).await; // tidy: allow-sleep: slowness is the case
        say(&mut stream, crate::parts::OK).await;
    })
    .await;
    let gateway = Gateway::start(settings(slow.address), limits);
    let mut client = gateway.connect().await;
    say(&mut client, GET).await;
    assert_eq!(read_answer(&mut client).await.1, "ok");
    assert_eq!(read_rest(&mut client).await, "");
}

#[tokio::test]
async fn clients_that_do_not_read_their_answer_are_cut_off() {
    let limits = ListenerSettings { idle_timeout: SHORT, ..listener_settings() };
    let (ended, mut end) = tokio::sync::mpsc::channel(1);
    let endless = Upstream::start(move |mut stream| {
        let ended = ended.clone();
        async move {
            read_head(&mut stream).await;
            say(&mut stream, "HTTP/1.1 200 OK\r\n\r\n").await;
            while stream.write_all(&[b'x'; 65536]).await.is_ok() {}
            ended.send(()).await.unwrap();
        }
    })
    .await;
    let gateway = Gateway::start(settings(endless.address), limits);
    let mut client = gateway.connect().await;
    say(&mut client, GET).await;
    end.recv().await.unwrap();
    drop(client);
}

#[tokio::test]
async fn one_connection_too_many_is_closed_and_its_place_is_free_again() {
    let limits = ListenerSettings { max_connections: 2, ..listener_settings() };
    let (_upstream, mut gateway) = gateway(limits).await;
    let mut first = gateway.connect().await;
    let mut second = gateway.connect().await;
    for client in [&mut first, &mut second] {
        say(client, GET).await;
        assert_eq!(read_answer(client).await.1, "ok");
    }
    assert_eq!(shout(gateway.address, GET.as_bytes()).await, "");

    drop(first);
    loop {
        settle().await;
        let mut third = gateway.connect().await;
        if third.write_all(GET.as_bytes()).await.is_ok() && read_head(&mut third).await.is_some() {
            break;
        }
    }
    gateway.stop();
    drop(second);
    let served = gateway.ended().await;
    assert!(served.refused >= 1, "{served:?}");
    assert_eq!(served.dropped, 0);
}

#[tokio::test]
async fn long_heads_are_refused() {
    let (upstream, gateway) = gateway(listener_settings()).await;
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(100));
    let answer = shout(gateway.address, many.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer:?}");

    let large = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(70_000));
    let answer = shout(gateway.address, large.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer:?}");

    let endless = "y".repeat(1 << 20);
    let answer = shout(gateway.address, format!("GET /{endless}").as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer:?}");
    assert_eq!(upstream.connections(), 0);

    let full = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(99));
    let mut client = gateway.connect().await;
    say(&mut client, &full).await;
    assert_eq!(read_answer(&mut client).await.1, "ok");
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let upstream = Upstream::start(|mut stream| async move {
        while let Some((head, _)) = read_head(&mut stream).await {
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let length = path.len();
            say(&mut stream, &format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{path}"))
                .await;
        }
    })
    .await;
    let gateway = Gateway::to(upstream.address);
    let mut client: TcpStream = gateway.connect().await;
    let requests: String =
        (0..20).map(|at| format!("GET /{at} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    let last = "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    say(&mut client, &format!("{requests}{last}")).await;
    let all = read_rest(&mut client).await;
    let bodies: Vec<_> = all.lines().filter_map(|line| line.strip_prefix('/')).collect();
    let numbers: Vec<_> = (0..20).map(|at| format!("{at}HTTP/1.1 200 OK")).collect();
    assert_eq!(bodies[..20], numbers);
    assert!(all.ends_with("/last"), "{all}");
}

/// A replay is one piece: the server has handed it on long before the client has read it.
#[tokio::test]
async fn a_client_that_reads_slowly_but_steadily_gets_all_of_its_answer() {
    const LONG: usize = 16 << 20;
    let idle = Duration::from_millis(500);
    let limits = ListenerSettings { idle_timeout: idle, ..listener_settings() };
    let listener = crate::parts::listener(limits);
    let address = listener.local_addr().unwrap();
    let service = tower::service_fn(|_| async {
        let body = http_body_util::Full::<bytes::Bytes>::from(vec![b'x'; LONG]);
        Ok::<_, std::convert::Infallible>(http::Response::new(body))
    });
    tokio::spawn(listener.serve(move || service, std::future::pending(), idle));
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let mut client = socket.connect(address).await.unwrap();
    say(&mut client, "GET / HTTP/1.1\r\nHost: shop\r\n\r\n").await;
    let (_, rest) = read_head(&mut client).await.unwrap();
    let mut piece = vec![0; 128 << 10];
    let mut read = rest.len();
    while read < LONG {
        let more = client.read(&mut piece).await.unwrap_or(0);
        assert_ne!(more, 0, "cut off after {read} bytes");
        read += more;
        tokio::time::sleep(idle / 50).await; // tidy: allow-sleep: this is how slow it reads
    }
}
