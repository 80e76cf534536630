//! Each defect in a world that has only this one: doctor finds it and nothing else, and nothing more once it is mended.

mod addresses;
mod defects;
mod examples;
mod hanging;
mod installed;
mod one_truth;
mod placed;
mod places;
mod scripts;
mod trial;
mod ward;
