import { describe, expect, test } from 'vitest'
import { acceptForm, excludeForm } from '../src/sends/address.ts'
import { type Candidate, matchReport, type Surroundings, type UnknownReport } from '../src/sends/match.ts'

const CLAIMED = Date.UTC(2026, 10, 29, 12)
const minutesAfter = (minutes: number) => new Date(CLAIMED + minutes * 60_000)

const report: UnknownReport = {
  kind: 'delivered',
  messageId: 'm1',
  recipient: 'ada@example.com',
  occurredAt: minutesAfter(1),
  subject: null,
}
const candidate: Candidate = {
  attempt: 'a1',
  recipient: 'ada@example.com',
  claimedAt: new Date(CLAIMED),
  outcome: 'unknown',
  state: 'needs_review',
  subject: 'Your receipt',
}
const around: Surroundings = { others: [], isExclusive: true, isBreakerClosed: true }

/** What becomes of the one event, with one thing changed. */
function matched(change: { report?: Partial<UnknownReport>; candidate?: Partial<Candidate>; around?: Partial<Surroundings> }) {
  const sole = { ...candidate, ...change.candidate }
  const match = matchReport({ ...report, ...change.report }, [sole], { ...around, ...change.around })
  return 'parked' in match ? match.parked : match.candidate.attempt
}

describe('the matching rule', () => {
  test('takes the one unknown call to the recipient shortly before the event', () => {
    expect(matchReport(report, [candidate], around)).toEqual({ candidate })
  })

  test('I7 without a candidate an event is foreign', () => {
    expect(matchReport(report, [], around)).toEqual({ parked: 'foreign', candidates: [] })
  })

  test.each<[string, Partial<Candidate>]>([
    ['unknown', {}],
    ['accepted without an ID', { outcome: 'accepted', state: 'sent' }],
    ['in flight', { outcome: 'in_flight', state: 'sending' }],
    ['of a send that a person closed', { state: 'abandoned' }],
    ['under a tag', { recipient: 'ada+shop@example.com' }],
    ['days earlier', { claimedAt: minutesAfter(-13 * 1_440) }],
    ['with another subject', { subject: 'Your invoice' }],
  ])('I7 a second candidate that is %s makes it ambiguous, whichever comes first', (_, change) => {
    const second = { ...candidate, attempt: 'a2', ...change }

    expect(matchReport({ ...report, subject: 'Your receipt' }, [candidate, second], around)).toMatchObject({
      parked: 'ambiguous',
    })
    expect(matchReport({ ...report, subject: 'Your receipt' }, [second, candidate], around)).toMatchObject({
      parked: 'ambiguous',
    })
  })

  test.each([
    [-60.01, 'foreign'],
    [-60, 'other time'],
    [14 * 1_440, 'other time'],
    [14 * 1_440 + 0.01, 'foreign'],
  ])('an event %d minutes after the only call is %s', (minutes, expected) => {
    expect(matched({ report: { occurredAt: minutesAfter(minutes) } })).toBe(expected)
  })

  test('a call outside of that time makes nothing ambiguous', () => {
    const old = { ...candidate, attempt: 'a2', claimedAt: minutesAfter(-15 * 1_440) }

    expect(matchReport(report, [old, candidate], around)).toEqual({ candidate })
  })

  test('of many candidates the twenty nearest are shown, the nearest first', () => {
    const many = Array.from({ length: 30 }, (_, index) => ({
      ...candidate,
      attempt: `a${index}`,
      claimedAt: minutesAfter(index % 2 === 0 ? -index : index / 100),
    }))

    const match = matchReport({ ...report, occurredAt: minutesAfter(0) }, many, around)

    const expected = [0, ...Array.from({ length: 15 }, (_, index) => 2 * index + 1), 2, 4, 6, 8].map((index) => `a${index}`)
    expect(match).toEqual({ parked: 'ambiguous', candidates: expected })
  })

  test('a call in flight is waited for', () => {
    expect(matched({ candidate: { outcome: 'in_flight', state: 'sending' } })).toBe('in flight')
  })

  test.each([
    ['ADA@Example.COM', 'a1'],
    [' ada@example.com ', 'a1'],
    ['ada+shop@example.com', 'other address'],
    ['a.da@example.com', 'other address'],
  ])('an event to %s: %s', (recipient, expected) => {
    expect(matched({ report: { recipient } })).toBe(expected)
  })

  test.each([
    [-2.01, 'other time'],
    [-2, 'a1'],
    [0, 'a1'],
    [1_440, 'a1'],
    [1_440.01, 'other time'],
  ])('an event %d minutes after the claim: %s', (minutes, expected) => {
    expect(matched({ report: { occurredAt: minutesAfter(minutes) } })).toBe(expected)
    expect(matched({ report: { occurredAt: minutesAfter(minutes) }, candidate: { outcome: 'accepted', state: 'sent' } })).toBe(
      expected,
    )
  })

  test.each([
    ['delivered', 'a1'],
    ['bounced', 'a1'],
    ['opened', 'other kind'],
    ['complained', 'other kind'],
    ['deferred', 'other kind'],
  ])('the event %s for an unknown call: %s', (kind, expected) => {
    expect(matched({ report: { kind } })).toBe(expected)
  })

  test('any kind of event tells the message of a call that was accepted', () => {
    expect(matched({ report: { kind: 'opened' }, candidate: { outcome: 'accepted', state: 'sent' } })).toBe('a1')
  })

  test.each<[Candidate['state'], string]>([
    ['needs_review', 'a1'],
    ['queued', 'a1'],
    ['claimed', 'resend under way'],
    ['sending', 'resend under way'],
    ['sent', 'decided'],
    ['rejected', 'a1'],
    ['abandoned', 'decided'],
  ])('an unknown call of a send that is %s: %s', (state, expected) => {
    expect(matched({ candidate: { state } })).toBe(expected)
  })

  test.each([
    ['m2', -60, 'other message'],
    ['m2', 5_000, 'other message'],
    ['m2', -60.01, 'a1'],
    ['m1', 0, 'a1'],
  ])('beside the unexplained message %s of minute %d: %s', (messageId, minutes, expected) => {
    const others = [{ messageId, occurredAt: minutesAfter(minutes) }]

    expect(matched({ around: { others } })).toBe(expected)
    expect(matched({ around: { others }, candidate: { outcome: 'accepted', state: 'sent' } })).toBe(expected)
  })

  test.each([
    ['Your receipt', 'Your receipt', 'a1'],
    ['Your invoice', 'Your receipt', 'other subject'],
    ['Your invoice', null, 'a1'],
    [null, 'Your receipt', 'a1'],
  ])('an event about %j and a call about %j: %s', (one, other, expected) => {
    expect(matched({ report: { subject: one }, candidate: { subject: other } })).toBe(expected)
  })

  test.each<[Partial<Surroundings>, string]>([
    [{ isExclusive: false }, 'account not exclusive'],
    [{ isBreakerClosed: false }, 'breaker open'],
  ])('with %j nothing is bound: %s', (change, expected) => {
    expect(matched({ around: change })).toBe(expected)
    expect(matched({ around: change, candidate: { outcome: 'accepted', state: 'sent' } })).toBe(expected)
  })
})

describe('addresses', () => {
  test.each([
    ['Ada@Example.com', 'ada@example.com', 'ada@example.com'],
    ['ada+shop+x@example.com', 'ada+shop+x@example.com', 'ada@example.com'],
    ['a.d.a@example.com', 'a.d.a@example.com', 'a.d.a@example.com'],
    ['a.d.a+x@gmail.com', 'a.d.a+x@gmail.com', 'ada@gmail.com'],
    ['A.da@GoogleMail.com', 'a.da@googlemail.com', 'ada@gmail.com'],
    ['ada@büro.example', 'ada@xn--bro-hoa.example', 'ada@xn--bro-hoa.example'],
    ['zoe\u0308@example.com', 'zoë@example.com', 'zoë@example.com'],
    ['"a@b"@example.com', '"a@b"@example.com', '"a@b"@example.com'],
    ['no address', '@no address', '@no address'],
  ])('%s is accepted as %s and excluded as %s', (address, accepted, excluded) => {
    expect(acceptForm(address)).toBe(accepted)
    expect(excludeForm(address)).toBe(excluded)
  })
})
