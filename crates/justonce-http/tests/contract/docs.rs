//! The documentation says everything that the layer does.

use std::path::Path;

use justonce_http::ProblemCode;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn h33_every_code_has_its_page() {
    for code in ProblemCode::ALL {
        let page = read(&format!("docs/errors/{}.md", code.as_str()));
        assert!(page.starts_with(&format!("# {}\n", code.as_str())));
        assert!(page.contains(&format!("Status {}", code.status().as_u16())), "{page}");
        assert_eq!(page.contains("may succeed later"), code.is_retryable(), "{}", code.as_str());
    }
}

#[test]
fn h33_the_manual_names_every_code_and_header() {
    let manual = read("docs/http.md");
    for code in ProblemCode::ALL {
        let link = format!("[`{0}`](errors/{0}.md)", code.as_str());
        assert!(manual.contains(&link), "docs/http.md does not link {link}");
    }
    for header in [
        "Idempotency-Key",
        "Idempotency-Attempt",
        "Idempotency-Fence",
        "Idempotency-Record",
        "Idempotency-Outcome",
        "Idempotent-Replayed",
        "Idempotency-Status",
        "Idempotency-Key-Lifetime",
    ] {
        assert!(manual.contains(header), "docs/http.md does not name {header}");
    }
}
