//! The gateway with servers that we did not write: nginx in front of it and behind it, the server
//! of Python's standard library, and gunicorn.

mod gunicorn;
mod nginx_behind;
mod nginx_in_front;
mod python;
