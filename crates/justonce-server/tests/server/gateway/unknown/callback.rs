//! The downstream tells by itself.

use serde_json::{Value, json};

use super::stage::{Heard, Stage, admin_send};
use crate::support::client::state;
use crate::support::upstream::Message;

fn call_back(stage: &Stage, heard: &Heard, token: Option<&str>, said: &Value) -> Message {
    let token = token.map(|token| format!("Bearer {token}"));
    let mut headers = vec![("content-type", "application/json")];
    headers.extend(token.as_deref().map(|token| ("authorization", token)));
    let request = format!("POST /callbacks/{}", heard.record);
    admin_send(stage.gateway.admin, &request, &headers, &said.to_string())
}

const TOKEN: Option<&str> = Some("token-of-the-payments-service");

#[test]
fn happened_is_replayed_and_did_not_happen_is_executed() {
    let stage = Stage::new();
    let (paid, lost) = (stage.unknown("paid"), stage.unknown("lost"));
    let said = json!({ "fence": paid.fence, "result": "happened", "source": "payments",
        "why": "ledger entry 9", "outcome": { "status": 201, "json": { "id": 9 } } });
    assert_eq!(call_back(&stage, &paid, TOKEN, &said).status(), 200);
    assert_eq!(call_back(&stage, &paid, TOKEN, &said).status(), 200, "once more is no mistake");
    let replay = stage.pay("paid");
    assert_eq!((replay.status(), replay.text().as_str()), (201, r#"{"id":9}"#));
    assert_eq!(stage.resolutions(&paid), ["callback payments completed: ledger entry 9"]);
    let said = json!({ "fence": lost.fence, "result": "did_not_happen", "source": "payments" });
    assert_eq!(call_back(&stage, &lost, TOKEN, &said).status(), 200);
    assert_eq!(stage.resolutions(&lost), ["callback payments released: reported by the service"]);
    assert_eq!(state(stage.gateway.address, "lost"), "released", "free for the next request");
}

#[test]
fn strangers_and_nonsense_resolve_nothing() {
    let stage = Stage::new();
    let heard = stage.unknown("k");
    let right = json!({ "fence": heard.fence, "result": "did_not_happen", "source": "payments" });
    for token in [None, Some("wrong"), Some("")] {
        assert_eq!(call_back(&stage, &heard, token, &right).status(), 401, "{token:?}");
    }
    for wrong in [
        json!({ "fence": heard.fence, "result": "happened", "source": "payments" }),
        json!({ "fence": heard.fence, "result": "perhaps", "source": "payments" }),
        json!({ "fence": heard.fence, "result": "did_not_happen", "source": "" }),
        json!({ "fence": heard.fence, "result": "did_not_happen" }),
        json!({ "fence": heard.fence, "result": "did_not_happen", "source": "payments",
                "outcome": { "status": 200 } }),
    ] {
        assert_eq!(call_back(&stage, &heard, TOKEN, &wrong).status(), 400, "{wrong}");
    }
    let old = json!({ "fence": heard.fence + 1, "result": "did_not_happen", "source": "payments" });
    assert_eq!(call_back(&stage, &heard, TOKEN, &old).code(), "fence-old");
    assert_eq!(state(stage.gateway.address, "k"), "unknown");
    assert!(stage.resolutions(&heard).is_empty());
}
