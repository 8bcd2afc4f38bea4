import { createHmac, generateKeyPairSync, sign } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { createProvider } from '../../src/providers/registry.ts'
import { isUsableSecret } from '../../src/providers/signature.ts'
import { judge } from '../support/judge.ts'

const NOW = 1_790_000_000
const MISMATCH = { ok: false, reason: 'signature_mismatch' }
const MALFORMED = { ok: false, reason: 'malformed_signature' }
const MISSING = { ok: false, reason: 'missing_signature' }

const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 })
const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' })
const pem = { format: 'pem', type: 'spki' } as const
const spki = (key: typeof rsa.publicKey) => (key.export({ format: 'der', type: 'spki' }) as Buffer).toString('base64')
const RSA_PEM = rsa.publicKey.export(pem) as string
const EC_PEM = ec.publicKey.export(pem) as string

describe('sendgrid', () => {
  const BODY =
    '[{"email":"ada@example.com","timestamp":1789999990,"event":"delivered","sg_event_id":"a","sg_message_id":"m.0"}]\r\n'
  const signed = (text: string) => sign('sha256', Buffer.from(text), ec.privateKey)
  const post = (
    signature: string | string[],
    given: { body?: string; timestamp?: string | string[]; now?: number; tolerance?: number } = {},
  ) =>
    judge('sendgrid', {
      body: given.body ?? BODY,
      headers: {
        'X-Twilio-Email-Event-Webhook-Signature': signature,
        'X-Twilio-Email-Event-Webhook-Timestamp': given.timestamp ?? String(NOW),
      },
      secrets: [spki(ec.publicKey)],
      now: given.now ?? NOW,
      ...(given.tolerance !== undefined && { tolerance: given.tolerance }),
    })
  const GOOD = signed(`${NOW}${BODY}`).toString('base64')

  test('a digit that is moved between the time and the body makes no other body of the same signature', () => {
    const longer = `${NOW}1${BODY}`
    const signature = signed(longer).toString('base64')

    expect(post(signature, { timestamp: String(NOW), body: `1${BODY}` }).verdict.ok).toBe(true)
    expect(post(signature, { timestamp: `${NOW}1` }).verdict).toEqual(MALFORMED)
    expect(post(GOOD, { timestamp: String(NOW).slice(0, -1), body: `0${BODY}` }).verdict).toEqual(MALFORMED)
  })

  test('reads each event of the list, one ID once', () => {
    const event = (id: unknown, type: string) => ({
      sg_event_id: id,
      event: type,
      timestamp: 1_789_999_990,
      sg_message_id: `m.${type}`,
    })
    const body = JSON.stringify([
      event('a', 'delivered'),
      event('b', 'open'),
      event('a', 'delivered'),
      event(undefined, 'click'),
      1,
    ])
    const { verdict, events, unusable } = post(signed(`${NOW}${body}`).toString('base64'), { body })

    expect(verdict).toEqual({ ok: true, secretIndex: 0, signedAt: NOW })
    expect(events).toMatchObject([
      {
        id: 'a',
        idBasis: 'provider',
        type: 'delivered',
        livemode: null,
        occurredAt: new Date(1_789_999_990_000),
        objectRef: 'm.delivered',
      },
      { id: 'b', type: 'open', objectRef: 'm.open' },
    ])
    expect(unusable).toBe('no_id')
  })

  test('C-29 keeps what is no list of events for people', () => {
    const unusable = (body: string) => post(signed(`${NOW}${body}`).toString('base64'), { body }).unusable

    expect(['{}', '[]', 'null', '"x"', '', '[', '[[]]'].map(unusable)).toEqual([
      'no_events',
      'no_events',
      'no_events',
      'no_events',
      'empty_body',
      'not_json',
      'not_an_object',
    ])
  })

  test('C-16 has no bound of its own, and keeps one that is set', () => {
    expect(post(GOOD, { now: NOW + 86_400 * 3650 }).verdict.ok).toBe(true)
    expect(post(GOOD, { now: NOW + 300, tolerance: 300 }).verdict.ok).toBe(true)
    expect(post(GOOD, { now: NOW + 301, tolerance: 300 }).verdict).toMatchObject({ reason: 'timestamp_too_old' })
    expect(post(GOOD, { now: NOW - 301, tolerance: 300 }).verdict).toMatchObject({ reason: 'timestamp_too_new' })
  })

  test.each(['', 'abc', '1e9', '-1', ` ${NOW}`, '17900000000000'])(
    'C-17 refuses the time "%s" although it is signed',
    (timestamp) => {
      expect(post(signed(`${timestamp}${BODY}`).toString('base64'), { timestamp }).verdict).toEqual(MALFORMED)
    },
  )

  test('C-10 C-11 refuses every other form of the signature', () => {
    const p1363 = sign('sha256', Buffer.from(`${NOW}${BODY}`), { key: ec.privateKey, dsaEncoding: 'ieee-p1363' }).toString(
      'base64',
    )
    const bytes = Buffer.from(GOOD, 'base64')

    expect([post([]).verdict, post('').verdict]).toEqual([MISSING, MISSING])
    expect(post([GOOD, GOOD]).verdict).toEqual(MALFORMED)
    expect(post(GOOD, { timestamp: [String(NOW), String(NOW)] }).verdict).toEqual(MALFORMED)
    expect(post(bytes.toString('hex')).verdict.ok).toBe(false)
    for (const wrong of [
      p1363,
      Buffer.concat([bytes, Buffer.from([0])]).toString('base64'),
      bytes.subarray(1).toString('base64'),
      'AAAA',
    ])
      expect(post(wrong).verdict).toEqual(MISMATCH)
    expect(post(GOOD, { body: BODY.trimEnd() }).verdict).toEqual(MISMATCH)
    expect(post(createHmac('sha256', EC_PEM).update(`${NOW}${BODY}`).digest('base64')).verdict).toEqual(MISMATCH)
  })

  test('takes P-256 keys only', () => {
    const { scheme } = createProvider('sendgrid')
    const other = generateKeyPairSync('ec', { namedCurve: 'secp256k1' }).publicKey.export(pem) as string

    expect([EC_PEM, spki(ec.publicKey), RSA_PEM, other, 'text', ''].map((key) => isUsableSecret(scheme, key))).toEqual([
      true,
      true,
      false,
      false,
      false,
      false,
    ])
  })
})

describe('wise', () => {
  const BODY =
    '{"data":{"resource":{"type":"transfer","id":9007199254740993,"profile_id":1},"occurred_at":"2026-09-21T14:13:05Z"},"event_type":"transfers#state-change","sent_at":"2026-09-21T14:13:06Z"}'
  const signed = (text: string, algorithm = 'sha256') => sign(algorithm, Buffer.from(text), rsa.privateKey).toString('base64')
  const post = (signature: string | string[] = signed(BODY), headers = {}, secrets = [RSA_PEM]) =>
    judge('wise', { body: BODY, headers: { 'X-Signature-SHA256': signature, 'X-Delivery-Id': 'd1', ...headers }, secrets })

  test('reads the unsigned ID of the delivery, and an object with all its digits', () => {
    const { verdict, events } = post()

    expect(verdict).toEqual({ ok: true, secretIndex: 0 })
    expect(events).toMatchObject([
      {
        id: 'd1',
        idBasis: 'provider',
        idIsSigned: false,
        type: 'transfers#state-change',
        livemode: null,
        occurredAt: new Date('2026-09-21T14:13:05Z'),
        objectRef: '9007199254740993',
      },
    ])
    expect(post(signed(BODY), { 'X-Delivery-Id': [] }).unusable).toBe('no_id')
    expect(post(signed(BODY), { 'X-Delivery-Id': ['d1', 'd2'] }).unusable).toBe('no_id')
    expect(createProvider('wise').factHeaders).toEqual(['x-delivery-id', 'x-test-notification'])
  })

  test('C-32 a test notification says so', () => {
    const livemode = (value: string) => post(signed(BODY), { 'X-Test-Notification': value }).events[0]?.livemode

    expect(['true', 'false', ''].map(livemode)).toEqual([false, null, null])
  })

  test('refuses every other signature', () => {
    const good = signed(BODY)
    const pss = sign('sha256', Buffer.from(BODY), { key: rsa.privateKey, padding: 6 }).toString('base64')

    expect([post([]).verdict, post('').verdict]).toEqual([MISSING, MISSING])
    expect(post([good, good]).verdict).toEqual(MALFORMED)
    expect(post(good.replaceAll(/[+/]/g, '_')).verdict.ok).toBe(false)
    for (const wrong of [
      signed(`${BODY} `),
      signed(BODY, 'sha1'),
      pss,
      createHmac('sha256', RSA_PEM).update(BODY).digest('base64'),
      'AAAA',
    ])
      expect(post(wrong).verdict).toEqual(MISMATCH)
    expect(post(good, {}, [EC_PEM, 'text']).verdict).toEqual({ ok: false, reason: 'no_matching_key' })
    expect(post(good, {}, ['text', spki(rsa.publicKey)]).verdict).toEqual({ ok: true, secretIndex: 1 })
  })
})
