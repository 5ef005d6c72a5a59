//! HTTP/2 frames, written and read by hand.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::hardening::attacked::{connect, heard};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
/// `GET http://t/`, in the short forms that every peer knows.
pub(crate) const GET: &[u8] = b"\x82\x86\x84\x41\x01t";
/// The same, of which nothing is kept in the table of the connection.
pub(crate) const GET_UNKEPT: &[u8] = b"\x82\x86\x84\x01\x01t";
/// `POST http://t/`
pub(crate) const POST: &[u8] = b"\x83\x86\x84\x41\x01t";
/// The reason "no longer wanted".
pub(crate) const CANCEL: &[u8] = &[0, 0, 0, 8];
/// Far more than any client sends.
pub(crate) const FLOOD: u32 = 100_000;
/// The longest payload that every peer takes.
pub(crate) const MAX_PAYLOAD: usize = 16_384;
/// The window of a stream and of a connection, unless a peer says otherwise.
const FIRST_WINDOW: usize = 65_535;
const INITIAL_WINDOW_SIZE: u16 = 4;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header that no table has, with a name and a value of at most 126 bytes.
pub(crate) fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    let name = [&[0, length(name)], name.as_bytes()].concat();
    [&name[..], &[length(value)], value.as_bytes()].concat()
}

/// One setting of this client.
pub(crate) fn setting(number: u16, value: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&number.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

/// The window of each stream that the gateway may send to.
pub(crate) fn windows(bytes: u32) -> Vec<u8> {
    setting(INITIAL_WINDOW_SIZE, bytes)
}

/// A connection that speaks HTTP/2.
pub(crate) fn greeted(gateway: SocketAddr) -> TcpStream {
    greeted_with(gateway, &frame(SETTINGS, 0, 0, &[]))
}

/// The same with other settings of this client.
pub(crate) fn greeted_with(gateway: SocketAddr, settings: &[u8]) -> TcpStream {
    let mut stream = connect(gateway);
    stream.write_all(&[PREFACE, settings].concat()).unwrap();
    assert_eq!(next_frame(&mut stream).0, SETTINGS);
    stream
}

/// A connection, and how many bytes of a first upload it takes unread.
pub(crate) fn greeted_and_measured(gateway: SocketAddr) -> (TcpStream, usize) {
    let mut stream = connect(gateway);
    let ping = frame(PING, 0, 0, &[7; 8]);
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[]), &ping].concat()).unwrap();
    let (mut of_stream, mut of_connection) = (FIRST_WINDOW, FIRST_WINDOW);
    let mut is_second = false;
    loop {
        let (kind, payload) = next_frame(&mut stream);
        match kind {
            SETTINGS if !payload.is_empty() => {
                // What it says counts once it has heard that we know.
                stream.write_all(&frame(SETTINGS, ACK, 0, &[])).unwrap();
                for setting in payload.chunks_exact(6) {
                    let (number, value) = setting.split_at(2);
                    if number == INITIAL_WINDOW_SIZE.to_be_bytes() {
                        of_stream = number_of(value);
                    }
                }
            }
            WINDOW_UPDATE => of_connection += number_of(&payload),
            // The windows that it opens at once come before its second answer.
            PING if is_second => return (stream, of_stream.min(of_connection)),
            PING => {
                is_second = true;
                stream.write_all(&ping).unwrap();
            }
            _ => {}
        }
    }
}

fn number_of(bytes: &[u8]) -> usize {
    usize::try_from(u32::from_be_bytes(bytes.try_into().unwrap())).unwrap()
}

/// Sends the frames of many rounds until the gateway has had enough. How many rounds it took.
pub(crate) fn flood(stream: &mut TcpStream, round: impl FnMut(u32) -> Vec<u8>) -> u32 {
    flood_of(FLOOD, stream, round)
}

/// The same with fewer rounds.
pub(crate) fn flood_of(
    rounds: u32,
    stream: &mut TcpStream,
    mut round: impl FnMut(u32) -> Vec<u8>,
) -> u32 {
    for number in 0..rounds {
        if stream.write_all(&round(number)).is_err() {
            return number;
        }
    }
    rounds
}

/// Reads in the background, so that the flood is not stopped by a full line.
pub(crate) fn with_reader(stream: &TcpStream) -> std::thread::JoinHandle<Vec<u8>> {
    let mut reader = stream.try_clone().unwrap();
    std::thread::spawn(move || heard(&mut reader))
}

pub(crate) fn next_frame(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let (kind, _, payload) = next_frame_of(stream);
    (kind, payload)
}

/// The next frame, and its stream.
pub(crate) fn next_frame_of(stream: &mut TcpStream) -> (u8, u32, Vec<u8>) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).unwrap();
    let [a, b, c, kind, _, of @ ..] = head;
    let mut payload = vec![0; usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap()];
    stream.read_exact(&mut payload).unwrap();
    (kind, u32::from_be_bytes(of), payload)
}
