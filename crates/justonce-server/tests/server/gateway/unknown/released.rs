//! What was released did not fail: it has its own word wherever it is shown or counted.

use crate::gateway::unknown::stage::{Server, Stage};
use crate::support::client::state;

const CONFIG: &str = "[[route]]\nmatch = 'POST /payments'\nname = 'payments'\n";

#[test]
fn released_operations_are_shown_and_counted_as_released_on_every_store() {
    for server in Server::all() {
        let name = server.name();
        let stage = Stage::with(&server, CONFIG);
        let heard = stage.unknown("a");
        let released = stage.release(&heard, "ann");
        assert_eq!(released.status(), 200, "{name}: {}", released.text());
        assert_eq!(released.json()["state"], "released", "{name}");
        let shown = stage.get(&format!("/keys/{}", heard.record)).json();
        assert_eq!(shown["state"], "released", "{name}");
        let listed = |query: &str| stage.get(&format!("/keys{query}")).json()["keys"].clone();
        assert_eq!(listed("")[0]["state"], "released", "{name}");
        assert_eq!(listed("?state=released")[0]["id"], heard.record.as_str(), "{name}");
        assert_eq!(listed("?state=failed").as_array().unwrap().len(), 0, "{name}");
        assert_eq!(state(stage.gateway.address, "a"), "released", "{name}");
        let numbers = stage.get("/metrics").text();
        for line in [
            r#"idempotency_store_records{state="released"} 1"#,
            r#"idempotency_store_records{state="failed"} 0"#,
        ] {
            assert!(numbers.contains(line), "{name}: {line} is missing in\n{numbers}");
        }
    }
}
