//! `justonce store`: the real program, with a running gateway and without one.

use std::io::Read;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Output;

use justonce::{Clock, Entropy, Key, SystemClock};
use justonce_testbed::RedisServer;

use crate::gateway::stage::BODY;
use crate::support::client::{Call, pay, until};
use crate::support::process::{Gateway, Home, justonce};
use crate::support::upstream::Upstream;

const HOLD: &str = "[defaults]\non_lapsed = 'hold'\n";

fn store(args: &[&str]) -> Output {
    justonce().arg("store").args(args).output().unwrap()
}

fn said(output: &Output) -> String {
    let both = [&*output.stdout, &*output.stderr].concat();
    String::from_utf8(both).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn done(args: &[&str]) -> String {
    let output = store(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    said(&output)
}

#[track_caller]
fn refused(args: &[&str]) -> String {
    let output = store(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
    said(&output)
}

/// A key that says that it was issued now.
fn dated() -> String {
    Key::issued(SystemClock::new().now(), &Entropy::from_system()).as_str().to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A gateway that loses its store after a backup, and gets it back from there.
#[test]
fn what_happened_after_the_backup_is_unknown_after_the_restore() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), HOLD);
    let asked = upstream.serve();
    let asked = || asked.load(std::sync::atomic::Ordering::SeqCst);
    let gateway = home.start();
    let (kept, lost) = (dated(), dated());
    assert_eq!(pay(gateway.address, &kept, BODY).status(), 201);
    let (data, backup) = (home.path().join("data"), home.path().join("backup"));
    let admin = gateway.admin.to_string();
    let told = done(&["backup", text(&backup), "--admin", &admin]);
    assert!(told.contains("is a backup of 20"), "{told}");
    assert!(told.contains("backing up: "), "progress, where there is no terminal: {told}");
    assert_eq!(pay(gateway.address, &lost, BODY).status(), 201);
    let in_use = refused(&["check", text(&data)]);
    assert!(in_use.contains("in use by process"), "{in_use}");
    gateway.kill();
    assert!(done(&["check", text(&data)]).contains("Nothing is damaged"));
    std::fs::remove_dir_all(&data).unwrap();
    let told = done(&["restore", text(&backup), text(&data), "--clock-skew", "0s"]);
    for part in ["What was acknowledged after that is not in it", "UUIDv7", "keys list", "books"] {
        assert!(told.contains(part), "{part} is missing in {told}");
    }
    assert!(done(&["check", text(&data)]).contains("Nothing is damaged"));

    let gateway = home.start();
    assert!(gateway.log_line("restored-from-backup").contains("is not in it"));
    let replayed = pay(gateway.address, &kept, BODY);
    assert_eq!(replayed.header("idempotent-replayed"), Some("true"), "{replayed:?}");
    for _ in 0..2 {
        let held = pay(gateway.address, &lost, BODY);
        assert_eq!((held.status(), held.code().as_str()), (409, "outcome-unknown"), "{held:?}");
    }
    assert_eq!(asked(), 2, "what may have been executed was executed again");
    let metrics = Call::get(gateway.admin, "/metrics").text();
    for line in [
        r#"idempotency_store_warning{name="restored-from-backup"} 1"#,
        "idempotency_unknown_waiting 1",
    ] {
        assert!(metrics.contains(line), "{line} is missing in\n{metrics}");
    }
    is_listed_and_released(&gateway, &lost);
    assert_eq!(pay(gateway.address, &lost, BODY).status(), 201);
    assert_eq!(pay(gateway.address, &dated(), BODY).status(), 201, "a new key is new");
    assert_eq!(asked(), 4);
}

fn is_listed_and_released(gateway: &Gateway, key: &str) {
    let keys = |args: &[&str]| {
        let mut command = justonce();
        command.env("USER", "ann").arg("keys").args(args);
        let output = command.args(["--admin", &gateway.admin.to_string()]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let list = keys(&["list", "--state", "unknown", "--json"]);
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let row = &list["keys"][0];
    assert_eq!(row["key"], key);
    let id = row["id"].as_str().unwrap();
    let shown = keys(&["show", id]);
    assert!(shown.contains("the store was restored at"), "{shown}");
    keys(&["release", id, "--fence", &row["fence"].to_string(), "--why", "not in the books"]);
}

#[test]
fn a_backup_needs_the_token_and_a_place_that_is_free() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "admin_token = 's3cret'\n");
    let gateway = home.start();
    let admin = gateway.admin.to_string();
    let to = home.path().join("backup");
    let told = refused(&["backup", text(&to), "--admin", &admin]);
    assert!(told.contains("requires its admin token") && !to.exists(), "{told}");
    let with_token = ["backup", text(&to), "--admin", &admin, "--token", "s3cret"];
    done(&with_token);
    let told = refused(&with_token);
    assert!(told.contains("nothing is written over"), "{told}");
    assert!(done(&["check", text(&to)]).contains("is a backup of"));
    let data = home.path().join("data");
    let told = refused(&["restore", text(&to), text(&data)]);
    assert!(told.contains("has a store in it"), "{told}");
    let told = refused(&["backup", text(&home.path().join("x")), "--admin", "127.0.0.1:1"]);
    assert!(told.contains("cannot reach") && !home.path().join("x").exists(), "{told}");
}

/// The gateway hears a little later that a client is gone, and makes one backup at a time.
fn unless_busy(store: impl FnMut() -> Output) -> Output {
    until("the end of the backup before", store, |output| {
        !said(output).contains("another backup of this store")
    })
}

/// Passes on what a client sends, and so many bytes of the answer.
fn cut_off_after(admin: SocketAddr, bytes: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let gateway = TcpStream::connect(admin).unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), gateway.try_clone().unwrap());
        let request = std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        let mut answer = gateway.try_clone().unwrap().take(bytes);
        std::io::copy(&mut answer, &mut client).unwrap();
        for end in [&client, &gateway] {
            let _ = end.shutdown(Shutdown::Both);
        }
        let _ = request.join();
    });
    address
}

#[test]
fn a_backup_whose_connection_breaks_leaves_nothing_and_the_next_one_is_whole() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "");
    upstream.serve();
    let gateway = home.start();
    assert_eq!(pay(gateway.address, "order-17", BODY).status(), 201);
    let to = home.path().join("backup");
    for bytes in [200, 2000] {
        let cut_off = || cut_off_after(gateway.admin, bytes).to_string();
        let told = unless_busy(|| store(&["backup", text(&to), "--admin", &cut_off()]));
        assert!(said(&told).contains("broke off") && !to.exists(), "{told:?}");
    }
    let admin = gateway.admin.to_string();
    let whole = unless_busy(|| store(&["backup", text(&to), "--admin", &admin]));
    assert!(whole.status.success(), "{whole:?}");
    assert!(done(&["check", text(&to)]).contains("Nothing is damaged"));
    let frozen = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.unwrap().file_name().to_string_lossy().contains("frozen")
    };
    assert!(!std::fs::read_dir(home.path().join("data")).unwrap().any(frozen));
}

#[test]
fn a_closed_store_is_backed_up_too_and_damage_is_told_by_the_exit_code() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "");
    upstream.serve();
    let gateway = home.start();
    assert_eq!(pay(gateway.address, "order-17", BODY).status(), 201);
    gateway.kill();
    let place = home.path();
    let (data, backup, other) = (place.join("data"), place.join("backup"), place.join("other"));
    let nothing = refused(&["backup", text(&other), "--store", text(&backup)]);
    assert!(nothing.contains("there is no store") && !backup.exists(), "{nothing}");
    done(&["backup", text(&backup), "--store", text(&data)]);
    let journal = backup.join("engine/0.jnl");
    let mut bytes = std::fs::read(&journal).unwrap();
    bytes[5] ^= 1;
    std::fs::write(&journal, bytes).unwrap();
    let told = refused(&["check", text(&backup)]);
    assert!(told.contains("0.jnl is missing, or not as it was backed up"), "{told}");
    let told = refused(&["restore", text(&backup), text(&other)]);
    assert!(told.contains("engine/0.jnl is damaged") && !other.exists(), "{told}");
}

#[test]
fn another_store_says_that_it_is_backed_up_by_its_own_means() {
    let (home, upstream, redis) = (Home::new(), Upstream::new(), RedisServer::start().unwrap());
    home.configure_on(upstream.address(), &redis.url(), "");
    let gateway = home.start();
    let to = home.path().join("backup");
    let output = store(&["backup", text(&to), "--admin", &gateway.admin.to_string()]);
    assert!(said(&output).contains("Only the embedded store"), "{output:?}");
    assert!(!output.status.success() && !to.exists());
}
