"""A small file in each language, and what is in it: looked through by hand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """`symbols` are lines "kind path.of.name first-last"; `uses` are "line:column" of `name`."""

    path: str
    source: str
    symbols: str
    imports: str
    chunks: str
    name: str
    uses: str


SAMPLES = {
    "python": Sample(
        path="a/meter.py",
        source='''\
"""Budgets."""
import os
import os.path as path, json
from .errors import (Denied, Refused as No)

LIMIT, other = 3, 4


@dataclass
class Meter(Base):
    """Meter reserve."""

    rate: int = LIMIT

    def __init__(self, reserve=LIMIT):
        self.left = reserve

    @property
    def reserve(self) -> int:
        # reserve
        self.left -= 1
        return self.reserve + other


async def run(meter):
    reserve = meter.reserve
    def inner():
        return "reserve"
    for reserve in meter:
        pass
    return reserve(LIMIT, reserve=1)


type Pair = tuple[int, int]
''',
        symbols="""\
constant LIMIT 6-6
variable other 6-6
class Meter 10-22
attribute Meter.rate 13-13
method Meter.__init__ 15-16
attribute Meter.left 16-16
method Meter.reserve 19-22
function run 25-31
function run.inner 27-28
type Pair 34-34
""",
        imports="""\
2 os
3 os.path
3 json
4 .errors: Denied Refused
""",
        chunks="""\
1-6
9-22 class Meter
25-31 def run
34-34 type Pair
""",
        name="reserve",
        uses="16:20 22:20 26:20 31:11 31:26",
    ),
    "javascript": Sample(
        path="a/meter.js",
        source="""\
import fs, { readFile as read } from "./fs.js";
const util = require("util");
export const LIMIT = 3;

// A budget.
export class Meter extends Base {
  #left = 0;
  constructor(reserve) { this.#left = reserve; }
  static reserve(n) { return reserve(n); }
  get rest() { return this.#left; }
}

function* reserve() { yield "reserve"; }
const double = (x) => x * 2;
exports.halve = function (x) { const reserve = x; return reserve / 2; };
const api = { list: () => [], reserve };
export { Meter as default } from "./meter";
""",
        symbols="""\
variable util 2-2
constant LIMIT 3-3
class Meter 6-11
attribute Meter.#left 7-7
method Meter.constructor 8-8
method Meter.reserve 9-9
method Meter.rest 10-10
function reserve 13-13
function double 14-14
function halve 15-15
variable api 16-16
function api.list 16-16
""",
        imports="""\
1 ./fs.js: fs readFile
2 util
17 ./meter
""",
        chunks="""\
1-3
5-11 class Meter
13-17
""",
        name="reserve",
        uses="8:38 9:29 15:57 16:30",
    ),
    "typescript": Sample(
        path="a/meter.ts",
        source="""\
import type { Budget } from "./budget";
import * as fs from "node:fs";

export interface Limits { readonly most: number; reserve(n: number): void; }
export type Pair = [number, Budget];
export enum Kind { Small, Large = "large" }
namespace Inner { export const x = 1; }
declare function outside(a: string): void;

@sealed
export abstract class Meter<T> implements Limits {
  private left: number = 0;
  constructor(readonly most: number) { super(); }
  abstract rest(): number;
  reserve(n: number): void { this.left -= n; }
}

export const useMeter = (m: Meter<Budget>): void => m.reserve(1);
""",
        symbols="""\
interface Limits 4-4
attribute Limits.most 4-4
method Limits.reserve 4-4
type Pair 5-5
enum Kind 6-6
constant Kind.Small 6-6
constant Kind.Large 6-6
module Inner 7-7
variable Inner.x 7-7
function outside 8-8
class Meter 11-16
attribute Meter.left 12-12
method Meter.constructor 13-13
method Meter.rest 14-14
method Meter.reserve 15-15
function useMeter 18-18
""",
        imports="""\
1 ./budget: Budget
2 node:fs
""",
        chunks="""\
1-8
10-16 class Meter
18-18 function useMeter
""",
        name="reserve",
        uses="18:54",
    ),
    "tsx": Sample(
        path="a/view.tsx",
        source="""\
import React from "react";
export function View({ meter }: Props) {
  return <Meter limit={meter.limit}>limit</Meter>;
}
""",
        symbols="""\
function View 2-4
""",
        imports="""\
1 react: React
""",
        chunks="""\
1-4
""",
        name="limit",
        uses="3:16 3:29",
    ),
    "go": Sample(
        path="a/meter.go",
        source="""\
package meter

import (
	"fmt"
	store "example.org/app/store"
)

const Limit = 3

var (
	first, second int
)

// Meter counts.
type Meter struct {
	left int
}

type Counter interface {
	Reserve(n int) error
}

type Pair = map[string]Meter

func New(limit int) *Meter { return &Meter{left: limit} }

func (m *Meter) Reserve(n int) error {
	left := m.left
	fmt.Println("left", left)
	return nil
}
""",
        symbols="""\
constant Limit 8-8
variable first 11-11
variable second 11-11
struct Meter 15-17
attribute Meter.left 16-16
interface Counter 19-21
method Counter.Reserve 20-20
type Pair 23-23
function New 25-25
method Meter.Reserve 27-31
""",
        imports="""\
4 fmt
5 example.org/app/store
""",
        chunks="""\
1-31
""",
        name="left",
        uses="25:43 28:11 29:21",
    ),
    "rust": Sample(
        path="a/meter.rs",
        source="""\
use std::collections::{HashMap, HashSet as Set};
use crate::errors::Denied;
mod inner;

pub const LIMIT: u32 = 3;

/// Counts.
#[derive(Debug)]
pub struct Meter<T> {
    left: T,
}

pub enum Kind { Small, Large(u32) }

pub trait Count {
    fn reserve(&mut self, n: u32) -> u32;
}

impl<T> Count for Meter<T> {
    fn reserve(&mut self, n: u32) -> u32 {
        let left = n; // reserve
        self.reserve(left)
    }
}

macro_rules! twice { ($x:expr) => { $x; $x } }

type Pair = (Meter<u32>, Kind);

fn main() { twice!(println!("reserve {}", LIMIT)); }
""",
        symbols="""\
module inner 3-3
constant LIMIT 5-5
struct Meter 9-11
attribute Meter.left 10-10
enum Kind 13-13
constant Kind.Small 13-13
constant Kind.Large 13-13
trait Count 15-17
method Count.reserve 16-16
method Meter.reserve 20-23
macro twice 26-26
type Pair 28-28
function main 30-30
""",
        imports="""\
1 std::collections: HashMap HashSet
2 crate::errors::Denied
""",
        chunks="""\
1-17
19-24 impl Meter
26-30
""",
        name="reserve",
        uses="22:13",
    ),
    "java": Sample(
        path="a/Meter.java",
        source="""\
package org.example;

import java.util.List;
import static org.example.Limits.LIMIT;

/** Counts. */
public class Meter<T> extends Base implements Count {
    private static final int MOST = 3;
    private int left, rest;

    public Meter(int left) { this.left = left; }

    @Override
    public int reserve(int n) {
        int rest = n; // reserve
        return this.reserve(rest) + LIMIT;
    }

    enum Kind { SMALL, LARGE }
    interface Count { int reserve(int n); }
    record Pair(int a, int b) {}
}
""",
        symbols="""\
class Meter 7-22
constant Meter.MOST 8-8
attribute Meter.left 9-9
attribute Meter.rest 9-9
method Meter.Meter 11-11
method Meter.reserve 13-17
enum Meter.Kind 19-19
constant Meter.Kind.SMALL 19-19
constant Meter.Kind.LARGE 19-19
interface Meter.Count 20-20
method Meter.Count.reserve 20-20
class Meter.Pair 21-21
""",
        imports="""\
3 java.util.List
4 org.example.Limits.LIMIT
""",
        chunks="""\
1-4
6-22 class Meter
""",
        name="reserve",
        uses="16:20",
    ),
    "c": Sample(
        path="a/meter.c",
        source="""\
#include <stdio.h>
#include "meter.h"
#define LIMIT 3
#define TWICE(x) ((x) * 2)

typedef struct meter { int left; char *name; } Meter;
enum kind { SMALL, LARGE };
static int total = 0;
int reserve(Meter *meter, int n);

/* Counts. */
int reserve(Meter *meter, int n)
{
    int total = n; /* reserve */
    return reserve(meter, total) + LIMIT;
}

static char **names(void) { return "reserve"; }
""",
        symbols="""\
macro LIMIT 3-3
macro TWICE 4-4
type Meter 6-6
struct Meter.meter 6-6
attribute Meter.meter.left 6-6
attribute Meter.meter.name 6-6
enum kind 7-7
constant kind.SMALL 7-7
constant kind.LARGE 7-7
variable total 8-8
function reserve 9-9
function reserve 12-16
function names 18-18
""",
        imports="""\
1 stdio.h
2 meter.h
""",
        chunks="""\
1-9
11-16 function reserve
18-18 function names
""",
        name="reserve",
        uses="15:11",
    ),
    "cpp": Sample(
        path="a/meter.cpp",
        source="""\
#include <vector>
#include "meter.hpp"

namespace app {
template <typename T>
class Meter : public Base {
 public:
  Meter(int left) : left_(left) {}
  ~Meter();
  int reserve(int n);
  bool operator==(const Meter &other) const { return true; }
 private:
  int left_ = 0;
};

using Pair = std::pair<int, int>;
enum class Kind { Small, Large };
}

int app::Meter::reserve(int n)
{
  auto left = n; // reserve
  return this->reserve(left);
}
""",
        symbols="""\
module app 4-18
class app.Meter 6-14
method app.Meter.Meter 8-8
method app.Meter.~Meter 9-9
method app.Meter.reserve 10-10
method app.Meter.operator== 11-11
attribute app.Meter.left_ 13-13
type app.Pair 16-16
enum app.Kind 17-17
constant app.Kind.Small 17-17
constant app.Kind.Large 17-17
method app.Meter.reserve 20-24
""",
        imports="""\
1 vector
2 meter.hpp
""",
        chunks="""\
1-2
4-18 module app
20-24 function app.Meter.reserve
""",
        name="reserve",
        uses="23:15",
    ),
    "ruby": Sample(
        path="a/meter.rb",
        source="""\
require "json"
require_relative "errors"

module App
  # Counts.
  class Meter < Base
    LIMIT = 3
    attr_reader :left, :rest

    def initialize(left)
      @left = left
    end

    def self.reserve(n)
      left = n # reserve
      reserve(left) + LIMIT
    end

    def empty?
      @left.zero?
    end
  end
end
""",
        symbols="""\
module App 4-23
class App.Meter 6-22
constant App.Meter.LIMIT 7-7
attribute App.Meter.left 8-8
attribute App.Meter.rest 8-8
method App.Meter.initialize 10-12
method App.Meter.reserve 14-17
method App.Meter.empty? 19-21
""",
        imports="""\
1 json
2 errors
""",
        chunks="""\
1-2
4-23 module App
""",
        name="reserve",
        uses="16:6",
    ),
    "csharp": Sample(
        path="a/Meter.cs",
        source="""\
using System;
using System.Collections.Generic;

namespace App.Core
{
    public interface ICount { int Reserve(int n); }
    public enum Kind { Small, Large }
    public record Pair(int A, int B);

    /// Counts.
    public class Meter : ICount
    {
        private int left = 0;
        public int Rest { get; set; }
        public Meter(int left) { this.left = left; }

        [Obsolete]
        public int Reserve(int n)
        {
            var rest = n; // Reserve
            return this.Reserve(rest);
        }
    }
}
""",
        symbols="""\
module App.Core 4-24
interface App.Core.ICount 6-6
method App.Core.ICount.Reserve 6-6
enum App.Core.Kind 7-7
constant App.Core.Kind.Small 7-7
constant App.Core.Kind.Large 7-7
class App.Core.Pair 8-8
class App.Core.Meter 11-23
attribute App.Core.Meter.left 13-13
attribute App.Core.Meter.Rest 14-14
method App.Core.Meter.Meter 15-15
method App.Core.Meter.Reserve 17-22
""",
        imports="""\
1 System
2 System.Collections.Generic
""",
        chunks="""\
1-2
4-24 module App.Core
""",
        name="Reserve",
        uses="21:24",
    ),
    "php": Sample(
        path="a/Meter.php",
        source="""\
<?php
namespace App\\Core;

use App\\Errors\\Denied;
require_once "lib.php";

const LIMIT = 3;

interface Count { public function reserve(int $n): int; }
trait Shared { }
enum Kind: string { case Small = 's'; }

/** Counts. */
class Meter extends Base implements Count
{
    private int $left = 0;

    public function __construct(private int $most) { }

    public function reserve(int $n): int
    {
        $left = $n; // reserve
        return $this->reserve($left) + self::reserve(LIMIT);
    }
}

function halve($x) { return "reserve"; }
""",
        symbols="""\
constant LIMIT 7-7
interface Count 9-9
method Count.reserve 9-9
trait Shared 10-10
enum Kind 11-11
constant Kind.Small 11-11
class Meter 14-25
attribute Meter.left 16-16
method Meter.__construct 18-18
attribute Meter.most 18-18
method Meter.reserve 20-24
function halve 27-27
""",
        imports="""\
4 App\\Errors\\Denied
5 lib.php
""",
        chunks="""\
1-11
13-25 class Meter
27-27 function halve
""",
        name="reserve",
        uses="23:22 23:45",
    ),
    "bash": Sample(
        path="a/meter.sh",
        source="""\
#!/usr/bin/env bash
source ./lib.sh
. "other.sh"
LIMIT=3
export HOME_DIR=/tmp

# Counts.
reserve() {
  local left=$1
  echo "reserve $left"
  reserve "$left" "$LIMIT"
}

function halve { echo reserve; }
reserve 3
""",
        symbols="""\
constant LIMIT 4-4
constant HOME_DIR 5-5
function reserve 8-12
function halve 14-14
""",
        imports="""\
2 ./lib.sh
3 other.sh
""",
        chunks="""\
1-5
7-12 function reserve
14-15
""",
        name="reserve",
        uses="11:2 15:0",
    ),
}
