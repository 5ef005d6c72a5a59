//! Two who know at once: the first counts, and the other hears it.

use super::stage::{Heard, Server, Stage, admin_post};
use serde_json::json;

#[test]
fn of_two_operators_at_once_one_counts_on_every_store() {
    for server in Server::all() {
        let stage = Stage::with(&server, super::stage::CONFIG);
        for round in 0..5 {
            let key = format!("k-{round}");
            let heard = stage.unknown(&key);
            let taken = both(&stage, &heard);
            assert_eq!(taken.iter().filter(|status| **status == 200).count(), 1, "{taken:?}");
            assert_eq!(taken.iter().filter(|status| **status == 409).count(), 1, "{taken:?}");
            let winner = if taken[0] == 200 { "ann" } else { "bob" };
            let resolutions = stage.resolutions(&heard);
            assert_eq!(resolutions, [format!("operator {winner} completed: sure")]);
            assert_eq!(stage.pay(&key).text(), format!("by {winner}"), "{}", server.name());
        }
        assert!(stage.upstream.is_left_alone(), "the service was asked again");
    }
}

/// Two operators say different things at the same moment.
fn both(stage: &Stage, heard: &Heard) -> Vec<u16> {
    let (admin, path) = (stage.gateway.admin, format!("/keys/{}/complete", heard.record));
    std::thread::scope(|scope| {
        let tasks = ["ann", "bob"].map(|by| {
            let said = json!({ "fence": heard.fence, "by": by, "why": "sure",
                "outcome": { "status": 201, "body": format!("by {by}") } });
            let path = path.as_str();
            scope.spawn(move || admin_post(admin, path, &said).status())
        });
        tasks.map(|task| task.join().unwrap()).to_vec()
    })
}
