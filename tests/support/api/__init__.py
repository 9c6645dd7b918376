"""What is generated from the protos for people and for programs: the OpenAPI document and the reference."""
