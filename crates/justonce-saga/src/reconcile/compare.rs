//! Where records and effects disagree. Pure.

use std::collections::HashMap;

use justonce_core::store::Summary;
use justonce_core::{Fence, RecordId, StateName};

use super::effects::{About, BookedEffect};
use super::settings::Rules;

/// How a record and the effects disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Disagreement {
    /// The record says completed, and no effect is there.
    Missing,
    /// One operation has more than one effect, whatever its record says.
    Double,
    /// An effect without a record, or whose record says that it failed.
    Orphan,
    /// The effect is there, and the operation is in progress since longer than the grace: it will
    /// be executed again by a takeover.
    Unfinished,
    /// The operation is unknown, and its effect is there.
    UnknownDone,
    /// The operation is unknown, and no effect is there.
    UnknownUndone,
}

impl Disagreement {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Missing,
        Self::Double,
        Self::Orphan,
        Self::Unfinished,
        Self::UnknownDone,
        Self::UnknownUndone,
    ];

    /// The name in metrics and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Double => "double",
            Self::Orphan => "orphan",
            Self::Unfinished => "unfinished",
            Self::UnknownDone => "unknown_done",
            Self::UnknownUndone => "unknown_undone",
        }
    }
}

/// A record as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedRecord {
    /// The operation.
    pub about: About,
    /// Its state at that time.
    pub state: StateName,
    /// The fence of its last claim.
    pub fence: Fence,
}

impl From<Summary> for ObservedRecord {
    fn from(record: Summary) -> Self {
        let about = About { id: record.id, scope: record.scope, key: record.key };
        Self { about, state: record.state, fence: record.fence }
    }
}

/// One operation on which the record and the effects disagree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How.
    pub what: Disagreement,
    /// The operation.
    pub about: About,
    /// The state of its record and the fence of its last claim; nothing without a record.
    pub record: Option<(StateName, Fence)>,
    /// Its effects that are old enough to be judged, by name.
    pub effects: Vec<BookedEffect>,
}

/// Compares some records with **all** effects of their operations, and with effects whose
/// operations have no record at all. The records have not changed for the grace; what of the
/// effects is younger counts only against *it is not there*.
///
/// Each operation is found at most once, and in the order of the records, then of the effects.
#[must_use]
pub fn compare(
    records: &[ObservedRecord],
    effects: &[BookedEffect],
    rules: &Rules,
) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut by_record: HashMap<RecordId, Vec<&BookedEffect>> = HashMap::new();
    for effect in effects {
        by_record.entry(effect.about.id).or_default().push(effect);
    }
    for record in records {
        let all = by_record.remove(&record.about.id).unwrap_or_default();
        let old = judged(&all, rules);
        if let Some(what) = with_record(record.state, old.len(), all.is_empty()) {
            let (about, seen) = (record.about.clone(), Some((record.state, record.fence)));
            found.push(Finding { what, about, record: seen, effects: old });
        }
    }
    for effect in effects {
        // The first effect of an operation takes its place, and stands for all of them.
        let Some(all) = by_record.remove(&effect.about.id) else { continue };
        let remembered = all.iter().filter(|effect| effect.age < rules.remembered);
        let old = judged(&remembered.copied().collect::<Vec<_>>(), rules);
        if !old.is_empty() {
            let about = effect.about.clone();
            found.push(Finding { what: Disagreement::Orphan, about, record: None, effects: old });
        }
    }
    found
}

/// What is old enough, by name.
fn judged(effects: &[&BookedEffect], rules: &Rules) -> Vec<BookedEffect> {
    let old = effects.iter().filter(|effect| effect.age >= rules.grace);
    let mut old: Vec<BookedEffect> = old.map(|effect| (*effect).clone()).collect();
    old.sort_by(|one, other| one.name.cmp(&other.name));
    // A page that is listed while effects come in may have one of them twice.
    old.dedup_by(|one, other| one.name == other.name);
    old
}

/// What a record in this state, this many effects that are judged, and none at all mean.
const fn with_record(state: StateName, effects: usize, none: bool) -> Option<Disagreement> {
    Some(match (state, effects) {
        (StateName::Absent, 0) => return None,
        (StateName::Absent, _) => Disagreement::Orphan,
        (_, 2..) => Disagreement::Double,
        (StateName::Completed, 0) if none => Disagreement::Missing,
        (StateName::Unknown, 0) if none => Disagreement::UnknownUndone,
        (StateName::Unknown, 1) => Disagreement::UnknownDone,
        (StateName::Failed | StateName::Released, 1) => Disagreement::Orphan,
        (StateName::InProgress, 1) => Disagreement::Unfinished,
        _ => return None,
    })
}
