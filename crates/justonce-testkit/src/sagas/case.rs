//! What goes wrong, and where.

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Case {
    /// The step at which it does.
    pub step: String,
    /// Whether at the step itself or at its compensation.
    pub act: Act,
    /// What goes wrong.
    pub trouble: Trouble,
    /// The step that is refused, so that compensations are called at all.
    pub refused: Option<String>,
}

/// A step, or its compensation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// The step.
    Step,
    /// The compensation.
    Undo,
}

/// What goes wrong with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// Nothing.
    None,
    /// It is refused for good, and has no effect.
    Refused,
    /// It has its effect, and the reply is lost, once.
    ReplyLost,
    /// It does not arrive, again and again; a compensation arrives in the end.
    NeverArrives,
    /// It has its effect, and the reply is lost, again and again; a compensation is heard in the
    /// end.
    NeverHeard,
    /// It arrives twice.
    Repeated,
    /// The process dies just before it.
    DiesBefore,
    /// The process dies just after it, before anybody heard of it.
    DiesAfter,
}

impl Trouble {
    /// Every trouble.
    pub const ALL: [Self; 8] = [
        Self::None,
        Self::Refused,
        Self::ReplyLost,
        Self::NeverArrives,
        Self::NeverHeard,
        Self::Repeated,
        Self::DiesBefore,
        Self::DiesAfter,
    ];

    /// Whether the step takes effect in the end, if it is tried often enough.
    #[must_use]
    pub const fn is_passing(self) -> bool {
        !matches!(self, Self::Refused | Self::NeverArrives | Self::NeverHeard)
    }
}

impl Case {
    /// Every trouble at every step in turn; and at every compensation in turn, while the last step
    /// is refused.
    #[must_use]
    pub fn all(steps: &[&str]) -> Vec<Self> {
        let mut all = Vec::new();
        for &step in steps {
            for trouble in Trouble::ALL {
                let step = step.to_owned();
                all.push(Self { step, act: Act::Step, trouble, refused: None });
            }
        }
        let Some((last, others)) = steps.split_last() else { return all };
        for &step in others {
            for trouble in Trouble::ALL.into_iter().filter(|trouble| *trouble != Trouble::Refused) {
                let (step, refused) = (step.to_owned(), Some((*last).to_owned()));
                all.push(Self { step, act: Act::Undo, trouble, refused });
            }
        }
        all
    }
}
