//! What only the gateway says to the service: h46.

use super::http2;
use super::place::Place;
use crate::support::client::Call;

const FORGED: [(&str, &str); 4] = [
    ("Idempotency_Fence", "999"),
    ("IDEMPOTENCY-ATTEMPT", "999"),
    ("idempotency_record", "999"),
    ("Idempotency_Key", "999"),
];

/// Without it, trailers end at the first hop.
const NAMED: (&str, &str) = ("trailer", "idempotency-fence, idempotency_fence, x-sum");

#[test]
fn h46_no_header_or_trailer_that_looks_like_ours_reaches_the_service() {
    let off = "[[route]]\nmatch = 'POST /off'\nkey = 'off'\n";
    let stage = Place::embedded().counting(off);
    let lines: String = FORGED.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let lower: Vec<_> =
        FORGED.iter().map(|(name, value)| (name.to_ascii_lowercase(), *value)).collect();
    let lower: Vec<_> = lower.iter().map(|(name, value)| (&**name, *value)).collect();
    for (key, path) in [("a", "/payments"), ("b", "/off")] {
        for method in ["POST", "GET"] {
            let mut call = Call::connect(stage.gateway.address);
            let text = format!(
                "{method} {path} HTTP/1.1\r\nhost: test\r\nidempotency-key: {key}\r\n{lines}\
                 trailer: idempotency-fence, idempotency_fence, x-sum\r\n\
                 transfer-encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n{lines}x-sum: 17\r\n\r\n"
            );
            call.write(text.as_bytes());
            assert_eq!(call.answer().status(), 201);
        }
        let headers = [&lower[..], &[("idempotency-key", "c"), NAMED]].concat();
        let trailers = [&lower[..], &[("x-sum", "17")]].concat();
        let uri = format!("http://test{path}");
        http2::post_to(stage.gateway.address, &uri, &headers, "{}", &trailers);
    }
    assert_eq!(stage.service.calls(), 6);
    for number in 1..=6 {
        let heard = stage.service.heard(number);
        let forged = heard.headers.iter().chain(&heard.trailers).find(|(_, value)| value == "999");
        assert_eq!(forged, None, "{heard:?}");
        // Behind a body whose length is announced there is no room for trailers.
        let kept = heard.trailers.contains(&("x-sum".to_owned(), "17".to_owned()));
        assert_eq!(kept, heard.header("content-length").is_none(), "{heard:?}");
    }
}
