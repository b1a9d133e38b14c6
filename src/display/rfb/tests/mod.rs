//! Viewers of ours, against sessions and the server.

mod client;
mod decoder;
mod pictures;
mod server;
mod strangers;
