import { createPrivateKey, sign as signWith, X509Certificate } from 'node:crypto'
import { beforeEach, describe, expect, test } from 'vitest'
import { readConfig } from '../../src/config.ts'
import { createRemoteKeys } from '../../src/events/remote-keys.ts'
import { readEvents } from '../../src/providers/read-events.ts'
import { createProvider } from '../../src/providers/registry.ts'
import { verify } from '../../src/providers/signature.ts'
import { CERTIFICATES_VALID_AT, pem } from '../support/certificates.ts'
import { testDatabase } from '../support/database.ts'
import { countRows, emptyTables, ingest, storedEvents } from '../support/posting.ts'
import { standInProvider } from '../support/provider-server.ts'

const TOPIC = 'arn:aws:sns:eu-west-1:123456789012:ses-events'
const CERT_URL = 'https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-test.pem'
const key = createPrivateKey(pem('leaf-key'))

const DELIVERY = {
  Type: 'Notification',
  MessageId: '22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324',
  TopicArn: TOPIC,
  Message: '{"eventType":"Delivery","mail":{"messageId":"ses-1"}}',
  Timestamp: '2027-01-15T08:00:00.831Z',
}
/** Written out from Amazon's description, and signed here. */
const DELIVERY_TEXT = `Message
{"eventType":"Delivery","mail":{"messageId":"ses-1"}}
MessageId
22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324
Timestamp
2027-01-15T08:00:00.831Z
TopicArn
arn:aws:sns:eu-west-1:123456789012:ses-events
Type
Notification
`
const CONFIRMATION = {
  Type: 'SubscriptionConfirmation',
  MessageId: '165545c9-2a5c-472c-8df2-7ff2be2b3b1b',
  Token: '2336412f37f',
  TopicArn: TOPIC,
  Message: 'You have chosen to subscribe',
  SubscribeURL: 'https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&Token=2336412f37f',
  Timestamp: '2027-01-15T08:00:00.831Z',
}
const confirmationText = (type: string) => `Message
You have chosen to subscribe
MessageId
165545c9-2a5c-472c-8df2-7ff2be2b3b1b
SubscribeURL
https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&Token=2336412f37f
Timestamp
2027-01-15T08:00:00.831Z
Token
2336412f37f
TopicArn
arn:aws:sns:eu-west-1:123456789012:ses-events
Type
${type}
`

function signed(message: object, text: string, changes: object = {}, algorithm = 'sha256'): string {
  const Signature = signWith(algorithm, Buffer.from(text), key).toString('base64')
  return JSON.stringify({ ...message, SignatureVersion: '2', SigningCertURL: CERT_URL, Signature, ...changes })
}
const delivery = (changes: object = {}, text = DELIVERY_TEXT) => signed(DELIVERY, text, changes)

const database = await testDatabase()
const amazon = await standInProvider()
const keys = createRemoteKeys({
  log: { info: () => undefined, warn: () => undefined },
  fetch: amazon.fetch,
  now: () => CERTIFICATES_VALID_AT * 1000,
})
const service = await ingest(database, { sources: {} }, { keys })
service.clock.now = CERTIFICATES_VALID_AT * 1000
const post = (body: string) => service.post('/webhooks/ses', body, { 'content-type': 'text/plain; charset=UTF-8' })
beforeEach(async () => {
  await emptyTables(database)
  amazon.reset()
  amazon.answers('GET /SimpleNotificationService-test.pem', pem('leaf'))
  service.config.current = readConfig({ sources: { ses: { provider: 'aws-sns', topicArns: [TOPIC] } } })
})

test('a notification is verified by the certificate at its address, which is fetched once', async () => {
  const [first, second] = [await post(delivery()), await post(delivery())]

  expect(first.json).toEqual({
    status: 'accepted',
    events: [{ id: '22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324', type: 'Delivery', status: 'accepted' }],
  })
  expect(second.json.status).toBe('duplicate')
  expect(amazon.requests.map(({ host, line }) => `${line} of ${host}`)).toEqual([
    'GET /SimpleNotificationService-test.pem of sns.eu-west-1.amazonaws.com',
  ])
})

test('a redelivery that is signed anew is no conflict', async () => {
  await post(delivery())
  const again = await post(
    signed(DELIVERY, DELIVERY_TEXT, { SignatureVersion: '1', UnsubscribeURL: 'https://a.example' }, 'sha1'),
  )

  expect(again.json.status).toBe('duplicate')
  expect(await countRows(database)).toMatchObject({ events: 1, conflicts: 0 })
})

test('nothing is fetched for another topic, another host or another version', async () => {
  const other = 'arn:aws:sns:eu-west-1:999999999999:someone-elses'
  for (const changes of [
    { TopicArn: other },
    { SigningCertURL: 'https://attacker.example/a.pem' },
    { SignatureVersion: '3' },
    { Signature: '' },
  ])
    expect((await post(delivery(changes))).status).toBe(401)

  expect(amazon.requests).toEqual([])
  expect(await countRows(database)).toMatchObject({ events: 0 })
})

test('a certificate that can’t be had is a 503, and so is one that has ended', async () => {
  amazon.answers('GET /SimpleNotificationService-test.pem', '', 503)
  expect((await post(delivery())).status).toBe(503)

  amazon.answers('GET /SimpleNotificationService-test.pem', pem('expired'))
  expect((await post(delivery())).status).toBe(503)
  expect(await countRows(database)).toMatchObject({ events: 0 })
})

test.each([
  ['SubscriptionConfirmation', `open SubscribeURL in its body to confirm the subscription of ${TOPIC}`],
  ['UnsubscribeConfirmation', `the subscription of ${TOPIC} was ended; open SubscribeURL in its body if it should go on`],
])('a %s waits for a person, and its address is never fetched', async (type, error) => {
  const answer = await post(signed({ ...CONFIRMATION, Type: type }, confirmationText(type)))

  expect([answer.status, answer.json.status]).toEqual([200, 'quarantined'])
  expect((await storedEvents(database))[0]).toMatchObject({ type, status: 'quarantined', error })
  expect(amazon.requests).toHaveLength(1)
  expect(error).not.toContain('2336412f37f')
})

describe('the scheme', () => {
  const provider = createProvider('aws-sns', { topicArns: [TOPIC] })
  const leaf = new X509Certificate(pem('leaf')).publicKey
  const judge = (body: string | Buffer, tolerance = Number.POSITIVE_INFINITY) => {
    const request = { headers: {}, body: Buffer.from(body as string) }
    const verdict = verify(provider.scheme, request, [], CERTIFICATES_VALID_AT, tolerance, () => leaf)
    return verdict.ok ? 'verified' : verdict.reason
  }
  const read = (message: object) => readEvents(provider, { headers: {}, body: Buffer.from(JSON.stringify(message)) }).events[0]

  test('the decoded values are signed, however the JSON is written', () => {
    const escaped = delivery().replace('"Notification"', '"\\u004eotification"')

    expect(escaped).not.toBe(delivery())
    expect([judge(delivery()), judge(escaped), judge(JSON.stringify(JSON.parse(delivery()), undefined, 4))]).toEqual([
      'verified',
      'verified',
      'verified',
    ])
  })

  test('a subject is signed where there is one, an empty one too', () => {
    const withSubject = (subject: string) => DELIVERY_TEXT.replace('Timestamp\n', () => `Subject\n${subject}\nTimestamp\n`)

    expect(judge(signed({ ...DELIVERY, Subject: 'Hi' }, withSubject('Hi')))).toBe('verified')
    expect(judge(signed({ ...DELIVERY, Subject: '' }, withSubject('')))).toBe('verified')
    expect(judge(delivery({ Subject: 'Hi' }))).toBe('signature_mismatch')
    expect(judge(delivery({ Subject: null }))).toBe('verified')
  })

  test('a NUL in a message is signed as it is', () => {
    const text = DELIVERY_TEXT.replace('ses-1', () => 'ses\0')

    expect(judge(signed({ ...DELIVERY, Message: DELIVERY.Message.replace('ses-1', 'ses\0') }, text))).toBe('verified')
    expect(judge(signed({ ...DELIVERY, Message: DELIVERY.Message.replace('ses-1', 'ses\ufffd') }, text))).toBe(
      'signature_mismatch',
    )
  })

  test.each<[string, object, string]>([
    ['no signature', { Signature: undefined }, 'missing_signature'],
    ['a null signature', { Signature: null }, 'missing_signature'],
    ['a list of signatures', { Signature: ['AAAA'] }, 'malformed_signature'],
    ['a signature in base64url', { Signature: 'ab_-' }, 'malformed_signature'],
    ['the version as a number', { SignatureVersion: 2 }, 'unsupported_algorithm'],
    ['SHA-1 for SHA-256', { SignatureVersion: '1' }, 'signature_mismatch'],
    ['another kind of message', { Type: 'Note' }, 'malformed_signature'],
    ['the name of a method', { Type: 'constructor' }, 'malformed_signature'],
    ['a message that is no text', { Message: { a: 1 } }, 'malformed_signature'],
    ['a time that is none', { Timestamp: 'now' }, 'malformed_signature'],
    ['no topic', { TopicArn: undefined }, 'unexpected_topic'],
    ['a list of topics', { TopicArn: [TOPIC] }, 'unexpected_topic'],
    ['a topic in another case', { TopicArn: TOPIC.toUpperCase() }, 'unexpected_topic'],
    ['China', { SigningCertURL: 'https://sns.cn-north-1.amazonaws.com.cn/a.pem' }, 'verified'],
    ['http', { SigningCertURL: CERT_URL.replace('https', 'http') }, 'untrusted_cert_url'],
    ['no .pem', { SigningCertURL: 'https://sns.eu-west-1.amazonaws.com/a.txt' }, 'untrusted_cert_url'],
    ['.pem in the query', { SigningCertURL: 'https://sns.eu-west-1.amazonaws.com/?a.pem' }, 'untrusted_cert_url'],
    ['another service', { SigningCertURL: 'https://s3.eu-west-1.amazonaws.com/a.pem' }, 'untrusted_cert_url'],
    ['a bucket', { SigningCertURL: 'https://sns.eu.s3.amazonaws.com/a.pem' }, 'untrusted_cert_url'],
    ['a look-alike', { SigningCertURL: 'https://sns.eu-west-1.amazonaws.com.attacker.example/a.pem' }, 'untrusted_cert_url'],
    ['a host before it', { SigningCertURL: 'https://xsns.eu-west-1.amazonaws.com/a.pem' }, 'untrusted_cert_url'],
    ['user information', { SigningCertURL: 'https://sns.eu-west-1.amazonaws.com@attacker.example/a.pem' }, 'untrusted_cert_url'],
    ['no address', { SigningCertURL: 7 }, 'untrusted_cert_url'],
  ])('%s: %j → %s', (_what, changes, expected) => {
    expect(judge(delivery(changes))).toBe(expected)
  })

  test.each(['', 'null', '[]', '"text"', '{', '{"a":1}}', '['.repeat(100_000), '{"a":'.repeat(300)])(
    'a body that is no message has no signature: %s',
    (body) => {
      expect(judge(body)).toBe('missing_signature')
    },
  )

  test('invalid UTF-8 is never mended into something signed', () => {
    const body = Buffer.from(
      delivery(
        {},
        DELIVERY_TEXT.replace('ses-1', () => 'ses-\ufffd'),
      ).replace('ses-1', 'ses-~'),
    )
    body[body.indexOf('ses-~') + 4] = 0xff

    expect(judge(body)).toBe('missing_signature')
  })

  test('a tolerance bounds the signed time, where the operator sets one', () => {
    const text = DELIVERY_TEXT.replace('08:00:00.831Z', '07:59:50.000Z')
    const old = signed({ ...DELIVERY, Timestamp: '2027-01-15T07:59:50.000Z' }, text)

    expect([judge(old), judge(old, 10), judge(old, 9)]).toEqual(['verified', 'verified', 'timestamp_too_old'])
  })

  test.each([
    {},
    { topicArns: [] },
    { topicArns: ['ses-events'] },
    { topicArns: TOPIC },
    { topicArns: [TOPIC], certs: { a: 'b' } },
  ])('the options %j are refused', (options) => {
    expect(() => createProvider('aws-sns', options)).toThrow('options of provider "aws-sns"')
  })

  test('no secret is needed, and pinned certificates are used without a download', () => {
    const { provider } = readConfig({
      sources: { ses: { provider: 'aws-sns', topicArns: [TOPIC], certs: { [CERT_URL]: pem('leaf') } } },
    }).sources.get('ses') ?? { provider: undefined }

    expect(provider?.knownKeys?.get(CERT_URL)?.key).toEqual(leaf)
  })

  test.each<[object, string]>([
    [{ Message: '{"eventType":"Bounce"}' }, 'Bounce'],
    [{ Message: '{"notificationType":"Complaint"}' }, 'Complaint'],
    [{ Message: 'Hello' }, 'Notification'],
    [{ Message: '{"eventType":7}' }, ''],
    [{ Message: '[]' }, 'Notification'],
    [{ Type: 'SubscriptionConfirmation', Message: '{"eventType":"Bounce"}' }, 'SubscriptionConfirmation'],
  ])('of %j the type is %s', (changes, type) => {
    expect(read({ ...DELIVERY, ...changes })?.type).toBe(type === '' ? null : type)
  })

  test('an event has Amazon’s ID and time, and the email is its object', () => {
    expect(read(DELIVERY)).toMatchObject({
      id: '22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324',
      idBasis: 'provider',
      idIsSigned: true,
      livemode: null,
      occurredAt: new Date('2027-01-15T08:00:00.831Z'),
      objectRef: 'ses-1',
    })
  })
})
