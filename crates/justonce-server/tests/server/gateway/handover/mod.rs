//! Restart by SIGUSR2: a successor takes the sockets over (h55).

mod failed;
mod load;
mod stage;
mod whole;
