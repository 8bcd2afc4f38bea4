import { isUtf8 } from 'node:buffer'
import { z } from 'zod'
import { datedKey, isCertificate, pinnedKeys, plainHttpsUrl } from '../certificates.ts'
import { field, parseJson, parseUnverified } from '../json.ts'
import { defineProvider, type ProviderFacts } from '../provider.ts'
import type { FoundScheme, SignatureKind } from '../signature.ts'
import { readTime } from '../time.ts'

const SHA256: SignatureKind = { kind: 'rsa', algorithm: 'sha256', encoding: 'base64', secret: 'remote' }
const SHA1: SignatureKind = { ...SHA256, algorithm: 'sha1' }
const KINDS = new Map<unknown, SignatureKind>([
  ['1', SHA1],
  ['2', SHA256],
])
const CONFIRMATION = ['Message', 'MessageId', 'SubscribeURL', 'Timestamp', 'Token', 'TopicArn', 'Type']
/** The fields that are signed, in their order; all but the subject have to be there. */
const SIGNED = new Map<unknown, readonly string[]>([
  ['Notification', ['Message', 'MessageId', 'Subject', 'Timestamp', 'TopicArn', 'Type']],
  ['SubscriptionConfirmation', CONFIRMATION],
  ['UnsubscribeConfirmation', CONFIRMATION],
])
const TOPIC_ARN = /^arn:(aws[a-z-]*):sns:([a-z0-9-]+):\d+:\S+$/
const CERT_PATH = /^\/(?:SimpleNotificationService-[0-9a-f]+|ONCEHOOK-TEST)\.pem$/

const optionsSchema = z.strictObject({
  /** The topics that may post here. */
  topicArns: z.array(z.string().regex(TOPIC_ARN, 'must be the ARN of a topic')).min(1),
  /** Certificates by URL, used in place of a download. */
  certs: z.record(z.string(), z.string().refine(isCertificate, 'must be a certificate in PEM')).optional(),
})

function create({ topicArns, certs = {} }: z.infer<typeof optionsSchema>): ProviderFacts {
  return {
    name: 'aws-sns',
    documentation: 'https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html',
    scheme: schemeOf(topicArns),
    secrets: 'none',
    // A message has 256 kB at most, and its JSON may take twice as many.
    maxBodyBytes: 512 * 1024,
    idIsSigned: true,
    contentIsSigned: true,
    idBasis: 'provider',
    id: (event) => field(event, 'MessageId'),
    type(event) {
      const outer = field(event, 'Type')
      const message = messageOf(event)
      return outer === 'Notification' ? (field(message, 'eventType') ?? field(message, 'notificationType') ?? outer) : outer
    },
    occurredAt: (event) => field(event, 'Timestamp'),
    object: (event) => field(field(messageOf(event), 'mail'), 'messageId'),
    needsPerson(event) {
      const topic = field(event, 'TopicArn')
      switch (field(event, 'Type')) {
        case 'SubscriptionConfirmation':
          return `open SubscribeURL in its body to confirm the subscription of ${topic}`
        case 'UnsubscribeConfirmation':
          return `the subscription of ${topic} was ended; open SubscribeURL in its body if it should go on`
        default:
          return undefined
      }
    },
    // None of them is signed, and a later delivery may be signed by another certificate.
    volatileFields: ['Signature', 'SignatureVersion', 'SigningCertURL', 'UnsubscribeURL'],
    knownKeys: pinnedKeys(certs),
    remoteKeys: {
      request: (url) => ({ url }),
      // Who serves it is known by the host, over TLS; the file need not hold a chain, and the known libraries ask for none.
      read: (pem, _url, nowSeconds) => datedKey(pem, nowSeconds),
    },
  }
}

function schemeOf(topicArns: readonly string[]): FoundScheme {
  return {
    signatures: [SHA256, SHA1],
    place: 'field `Signature` of the body, by the certificate at `SigningCertURL`',
    signed: 'names and values of the fields of the message, each on a line of its own',
    timestamp: 'field `Timestamp` of the body',
    proofs({ body }) {
      // The decoded values are what is signed, with whatever parseJson would mend; mended from broken UTF-8 they would be others.
      const message = isUtf8(body) ? parseUnverified(body) : undefined
      const signature = field(message, 'Signature')
      if (signature === undefined || signature === null || signature === '') return 'missing_signature'
      const kind = KINDS.get(field(message, 'SignatureVersion'))
      if (!kind) return 'unsupported_algorithm'
      const topic = field(message, 'TopicArn')
      if (typeof topic !== 'string' || !topicArns.includes(topic)) return 'unexpected_topic'
      const certUrl = field(message, 'SigningCertURL')
      if (typeof certUrl !== 'string' || !isCertUrl(certUrl, topic)) return 'untrusted_cert_url'
      const text = signedText(message)
      const signedAt = readTime(field(message, 'Timestamp'))
      if (text === undefined || !signedAt || typeof signature !== 'string' || !/^[A-Za-z0-9+/]+={0,2}$/.test(signature))
        return 'malformed_signature'
      return [
        {
          signatures: [{ kind, given: [signature], keyName: certUrl }],
          signed: () => [[text]],
          signedAt: signedAt.getTime() / 1000,
        },
      ]
    },
  }
}

/**
 * Names and values, each on a line of its own; undefined where a field is missing or no text. No value but the message's own may
 * hold a line break: with lines moved from one field to another, one signature would do for other messages.
 */
function signedText(message: unknown): string | undefined {
  const names = SIGNED.get(field(message, 'Type'))?.filter((name) => name !== 'Subject' || isGiven(field(message, name)))
  const isText = names?.every((name) => {
    const value = field(message, name)
    return typeof value === 'string' && (name === 'Message' || !/[\r\n]/.test(value))
  })
  return isText ? names?.map((name) => `${name}\n${field(message, name)}\n`).join('') : undefined
}

const isGiven = (value: unknown) => value !== undefined && value !== null

/** The host of the topic's own region: under another name it could be a bucket of anybody's, such as `sns.s3-us-west-2`. */
function certHost(topic: string): string {
  const [, partition, region] = TOPIC_ARN.exec(topic) ?? []
  return `sns.${region}.amazonaws.com${partition === 'aws-cn' ? '.cn' : ''}`
}

function testKeyOf(topic: string): string {
  return `https://${certHost(topic)}/ONCEHOOK-TEST.pem`
}

function isCertUrl(text: string, topic: string): boolean {
  const url = plainHttpsUrl(text)
  return url !== undefined && url.hostname === certHost(topic) && CERT_PATH.test(url.pathname)
}

/** The JSON inside of a notification; undefined where its message is none. */
function messageOf(event: unknown): unknown {
  const text = field(event, 'Message')
  const parsed = typeof text === 'string' ? parseJson(text) : undefined
  return parsed?.ok ? parsed.value : undefined
}

/** Amazon SNS, for SES events and whatever else a topic carries (docs.aws.amazon.com/sns; sns-validator 0.3.5). */
export const awsSns = defineProvider({
  name: 'aws-sns',
  title: 'Amazon SNS (SES events)',
  options: optionsSchema,
  create,
  guide: {
    setUp:
      'In the SNS console create a subscription of the topic: protocol HTTPS, endpoint `https://YOUR-HOST/webhooks/aws-sns`, **raw message delivery off** (it would drop the signature). Amazon then posts a `SubscriptionConfirmation`, which is stored as quarantined: open its `SubscribeURL` to confirm, it is never fetched by itself. For SES, choose the topic as the destination of a configuration set’s events.',
    options: "topicArns: ['arn:aws:sns:eu-west-1:123456789012:ses-events']",
    secret:
      'None: Amazon signs by a certificate, and the options name the topics. Anybody can point a topic of their own at this address, and Amazon signs that too, so any other topic is refused.',
    identity:
      '`MessageId` of the body; the type is `eventType` (or `notificationType`) of the JSON in `Message`, else `Type`. `Message` reaches a rule as text: parse it there.',
    unsigned: '`UnsubscribeURL`, message attributes and the headers `x-amz-sns-…`; none of them is used.',
    retries:
      'Any 2xx within 15 s is success. By default 3 more times with the same ID, configurable per topic (not confirmed). Order is not kept.',
    traps: [
      'The content type is `text/plain` although the body is JSON.',
      'Signature versions 1 (SHA-1) and 2 (SHA-256) are accepted; choose 2 in the topic’s settings.',
      'The certificate is downloaded from `sns.REGION.amazonaws.com` (in China `.com.cn`) of the topic’s own region only and kept for at most a day; without access to it the answer is 503. `certs: { URL: PEM }` pins certificates instead.',
      'An `UnsubscribeConfirmation` is checked over the fields that Amazon documents; libraries differ there (not confirmed).',
      'Amazon names no bound for the age of a message. If you set `toleranceSeconds`, keep it longer than the topic’s retries.',
    ],
  },
  sample: {
    types: {},
    newId: (_hex, uuid) => uuid,
    keyNames: (options) => topicsOf(options).map(testKeyOf),
    request: ({ type, id, happenedSeconds, email, options }, sign) => {
      const time = new Date(happenedSeconds * 1000).toISOString()
      const [topic = ''] = topicsOf(options)
      const isOuter = SIGNED.has(type)
      const mail = { messageId: `ses-${id}`, source: 'billing@example.com', destination: [email] }
      const message: Record<string, string> = {
        Type: isOuter ? type : 'Notification',
        MessageId: id,
        TopicArn: topic,
        Message: isOuter ? `A sample ${type}` : JSON.stringify({ eventType: type, mail }),
        Timestamp: time,
        ...(isOuter &&
          type !== 'Notification' && { Token: 'sample', SubscribeURL: 'https://sns.eu-west-1.amazonaws.com/?sample' }),
      }
      return {
        headers: { 'content-type': 'text/plain; charset=UTF-8', 'x-amz-sns-message-type': String(message.Type) },
        body: JSON.stringify(
          { ...message, SignatureVersion: '2', Signature: sign(signedText(message) ?? ''), SigningCertURL: testKeyOf(topic) },
          undefined,
          2,
        ),
      }
    },
  },
})

/** The topics of a source as its configuration names them; the provider was created with them, so they have passed its schema. */
function topicsOf(options: Readonly<Record<string, unknown>>): readonly string[] {
  return (options as z.infer<typeof optionsSchema>).topicArns
}
