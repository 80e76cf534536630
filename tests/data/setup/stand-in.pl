#!/usr/bin/perl
# Stands for the program of its name: tells the test how it was called, and does what the test answers.
use strict;
use warnings;
use IO::Socket::UNIX;
use JSON::PP;

my ($program) = $0 =~ m{([^/]+)$};
my $socket = IO::Socket::UNIX->new(Peer => $ENV{STAND_IN}) or die "$program: the test is gone: $!\n";
print $socket encode_json({ program => $program, server => $ENV{SERVER}, arguments => \@ARGV });
$socket->shutdown(1);
my $answer = decode_json(join "", <$socket>);
if ($answer->{server}) { # a shell on another server
  $ENV{SERVER} = $answer->{server};
  $ENV{KPROXIDE_PVE_DIR} =~ s{[^/]+$}{$answer->{server}};
  exec "bash", "-c", $answer->{out};
}
print STDOUT $answer->{out};
print STDERR $answer->{err};
exit $answer->{code};
