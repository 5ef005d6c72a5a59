//! The statuses of gRPC.

use std::fmt;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident $code:literal $text:literal;)*) => {
        /// A status of gRPC.
        ///
        /// ```
        /// use justonce_http::GrpcStatus;
        ///
        /// assert_eq!(GrpcStatus::Unavailable.code(), 14);
        /// assert_eq!(GrpcStatus::from_name("unavailable"), Some(GrpcStatus::Unavailable));
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum GrpcStatus {
            $($(#[$doc])* $name,)*
        }

        impl GrpcStatus {
            /// All statuses, in the order of their codes.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its code, as `grpc-status` has it.
            #[must_use]
            pub const fn code(self) -> u8 {
                match self { $(Self::$name => $code,)* }
            }

            /// Its name, in capitals.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

statuses! {
    /// It succeeded.
    Ok 0 "OK";
    /// It was cancelled, typically by its caller.
    Cancelled 1 "CANCELLED";
    /// An error of which nothing else is known.
    Unknown 2 "UNKNOWN";
    /// The request is wrong, whatever the state of the system.
    InvalidArgument 3 "INVALID_ARGUMENT";
    /// Its deadline passed before it ended.
    DeadlineExceeded 4 "DEADLINE_EXCEEDED";
    /// What was asked for is not there.
    NotFound 5 "NOT_FOUND";
    /// What should be created is there already.
    AlreadyExists 6 "ALREADY_EXISTS";
    /// The caller may not do that.
    PermissionDenied 7 "PERMISSION_DENIED";
    /// A quota or a resource is used up.
    ResourceExhausted 8 "RESOURCE_EXHAUSTED";
    /// The state of the system does not allow it.
    FailedPrecondition 9 "FAILED_PRECONDITION";
    /// It was aborted, typically because of a conflict.
    Aborted 10 "ABORTED";
    /// It reached past the valid range.
    OutOfRange 11 "OUT_OF_RANGE";
    /// There is no such method.
    Unimplemented 12 "UNIMPLEMENTED";
    /// Something inside is broken.
    Internal 13 "INTERNAL";
    /// The service is not available at the moment.
    Unavailable 14 "UNAVAILABLE";
    /// Data is lost or damaged.
    DataLoss 15 "DATA_LOSS";
    /// The caller has no valid credentials.
    Unauthenticated 16 "UNAUTHENTICATED";
}

impl GrpcStatus {
    /// The status with this name, in any case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|status| status.as_str().eq_ignore_ascii_case(name))
    }

    /// The status with this code, as `grpc-status` has it.
    pub(crate) fn from_code(code: &[u8]) -> Option<Self> {
        let code: usize = std::str::from_utf8(code).ok()?.parse().ok()?;
        Self::ALL.get(code).copied()
    }
}

impl fmt::Display for GrpcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_their_places() {
        for (place, status) in GrpcStatus::ALL.iter().enumerate() {
            assert_eq!(usize::from(status.code()), place);
            assert_eq!(GrpcStatus::from_code(place.to_string().as_bytes()), Some(*status));
            assert_eq!(GrpcStatus::from_name(status.as_str()), Some(*status));
        }
        for wrong in [&b"17"[..], b"-1", b"", b"ok", b"\xff"] {
            assert_eq!(GrpcStatus::from_code(wrong), None);
        }
    }
}
