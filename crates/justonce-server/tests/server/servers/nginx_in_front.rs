//! nginx in front of the gateway, which names the clients.

use std::net::Ipv4Addr;

use justonce_testbed::WebServer;

use crate::support::client::Call;
use crate::support::process::{Gateway, Home};
use crate::support::upstream::{Connection, Message, Upstream};

/// Where nginx comes from, so that nobody else is trusted.
const PROXY: &str = "127.0.0.9";
const ANN: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
const BOB: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 4);

/// As the documentation of nginx has it, with connections that stay open.
fn nginx(gateway: &Gateway) -> WebServer {
    let outside = format!("upstream gateway {{ server {}; keepalive 4; }}", gateway.address);
    let server = format!(
        "location / {{\nproxy_pass http://gateway;\nproxy_bind {PROXY};\nproxy_http_version 1.1;\n\
         proxy_set_header Connection \"\";\nproxy_set_header Host $http_host;\n\
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
         proxy_set_header X-Forwarded-Proto https;\n}}"
    );
    WebServer::nginx(&outside, &server).unwrap()
}

fn started() -> (Home, Upstream, Gateway, WebServer) {
    let (home, upstream) = (Home::new(), Upstream::new());
    let trusted = format!("[proxies]\ntrusted = ['{PROXY}']\n");
    home.configure(upstream.address(), &format!("{trusted}[defaults]\nscope = ['address']\n"));
    let gateway = home.start();
    let nginx = nginx(&gateway);
    (home, upstream, gateway, nginx)
}

fn pay(from: Ipv4Addr, nginx: &WebServer, more: &str) -> Message {
    let mut call = Call::connect_from(from, nginx.address());
    let head = format!(
        "POST /payments HTTP/1.1\r\nhost: shop\r\nidempotency-key: k\r\n{more}\
         content-length: 3\r\n\r\npay"
    );
    call.write(head.as_bytes());
    call.answer()
}

/// The next request on a connection, answered with a number.
fn served(connection: &mut Connection, body: &[u8]) -> Message {
    let request = connection.read();
    connection.answer("201 Created", &[], body);
    request
}

#[test]
fn h49_clients_behind_nginx_are_told_apart_and_cannot_pass_for_another() {
    let (_home, upstream, _gateway, nginx) = started();
    let service = std::thread::spawn(move || {
        let mut connection = upstream.accept();
        let (ann, bob) = (served(&mut connection, b"ann"), served(&mut connection, b"bob"));
        (ann, bob, upstream, connection)
    });
    let first = pay(ANN, &nginx, "");
    assert_eq!((first.status(), first.text().as_str()), (201, "ann"), "{first:?}");
    // Bob says that he is Ann: what a client says does not count.
    let forged = pay(BOB, &nginx, &format!("x-forwarded-for: {ANN}\r\nforwarded: for={ANN}\r\n"));
    assert_eq!((forged.is_replay(), forged.text().as_str()), (false, "bob"), "{forged:?}");
    for (who, name) in [(ANN, "ann"), (BOB, "bob")] {
        let retry = pay(who, &nginx, "");
        assert_eq!((retry.is_replay(), retry.text().as_str()), (true, name), "{retry:?}");
    }
    let (ann, bob, upstream, _connection) = service.join().unwrap();
    assert!(upstream.is_left_alone());
    for (request, client) in [(ann, ANN), (bob, BOB)] {
        let chain = request.header("x-forwarded-for").unwrap();
        assert!(chain.starts_with(&client.to_string()), "{request:?}");
        assert_eq!(request.header("x-forwarded-proto"), Some("https"), "{request:?}");
        assert_eq!(request.header("x-forwarded-host"), Some("shop"), "{request:?}");
    }
}

/// nginx gives up on the gateway; the client's retry finds the outcome all the same.
#[test]
fn h19_what_nginx_gave_up_is_found_by_the_retry() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "[defaults]\non_concurrent = 'wait 20s'\n");
    let gateway = home.start();
    let server = format!(
        "location / {{ proxy_pass http://{}; proxy_read_timeout 1s; proxy_set_header Host shop; }}",
        gateway.address
    );
    let nginx = WebServer::nginx("", &server).unwrap();
    let first = pay(ANN, &nginx, "");
    assert_eq!(first.status(), 504, "{first:?}");
    let mut connection = upstream.accept();
    served(&mut connection, b"paid");
    let retry = pay(ANN, &nginx, "");
    assert_eq!((retry.status(), retry.is_replay()), (201, true), "{retry:?}");
    assert_eq!(retry.text(), "paid");
    assert!(upstream.is_left_alone());
}
