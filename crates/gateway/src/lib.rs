pub mod ports;
pub mod paths;
pub mod config;
pub mod anthropic;
pub mod decode;
pub mod peek;
