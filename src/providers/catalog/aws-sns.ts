import { z } from 'zod'
import { datedKey, isCertificate, pinnedKeys, plainHttpsUrl } from '../certificates.ts'
import { field, isRecord, parseExactly, parseJson } from '../json.ts'
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
/** The fields that are signed, in their order. */
const SIGNED = new Map<unknown, readonly string[]>([
  ['Notification', ['Message', 'MessageId', 'Subject', 'Timestamp', 'TopicArn', 'Type']],
  ['SubscriptionConfirmation', CONFIRMATION],
  ['UnsubscribeConfirmation', CONFIRMATION],
])
const TEST_KEY = 'https://sns.eu-west-1.amazonaws.com/ONCEHOOK-TEST.pem'

const optionsSchema = z.strictObject({
  /** The topics that may post here. */
  topicArns: z.array(z.string().regex(/^arn:\S+$/, 'must be the ARN of a topic')).min(1),
  /** Certificates by URL, used in place of a download. */
  certs: z.record(z.string(), z.string().refine(isCertificate, 'must be a certificate in PEM')).optional(),
})

function create({ topicArns, certs = {} }: z.infer<typeof optionsSchema>): ProviderFacts {
  return {
    name: 'aws-sns',
    documentation: 'https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html',
    scheme: schemeOf(topicArns),
    secrets: 'none',
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
      // Read exactly: the decoded values are what is signed, with whatever else parseJson would mend.
      const message = parseExactly(body)
      if (!isRecord(message)) return 'missing_signature'
      const signature = field(message, 'Signature')
      if (signature === undefined || signature === null || signature === '') return 'missing_signature'
      const kind = KINDS.get(field(message, 'SignatureVersion'))
      if (!kind) return 'unsupported_algorithm'
      const certUrl = field(message, 'SigningCertURL')
      if (typeof certUrl !== 'string' || !isCertUrl(certUrl)) return 'untrusted_cert_url'
      const topic = field(message, 'TopicArn')
      if (typeof topic !== 'string' || !topicArns.includes(topic)) return 'unexpected_topic'
      const lines = (SIGNED.get(field(message, 'Type')) ?? []).flatMap((name) => {
        const value = field(message, name)
        return value === undefined || value === null ? [] : [name, value]
      })
      const signedAt = readTime(field(message, 'Timestamp'))
      const isText = lines.length > 0 && lines.every((line) => typeof line === 'string')
      if (!isText || !signedAt || typeof signature !== 'string' || !/^[A-Za-z0-9+/]+={0,2}$/.test(signature))
        return 'malformed_signature'
      return [
        {
          signatures: [{ kind, given: [signature], keyName: certUrl }],
          signed: () => [[`${lines.join('\n')}\n`]],
          signedAt: signedAt.getTime() / 1000,
        },
      ]
    },
  }
}

function isCertUrl(text: string): boolean {
  const url = plainHttpsUrl(text)
  return url !== undefined && /^sns\.[a-z0-9-]{3,}\.amazonaws\.com(?:\.cn)?$/.test(url.hostname) && url.pathname.endsWith('.pem')
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
      'The certificate is downloaded from `sns.REGION.amazonaws.com` (or `.com.cn`) only and kept for at most a day; without access to it the answer is 503. `certs: { URL: PEM }` pins certificates instead.',
      'An `UnsubscribeConfirmation` is checked over the fields that Amazon documents; libraries differ there (not confirmed).',
      'Amazon names no bound for the age of a message. If you set `toleranceSeconds`, keep it longer than the topic’s retries.',
    ],
  },
  sample: {
    types: {},
    newId: (_hex, uuid) => uuid,
    keyNames: () => [TEST_KEY],
    request: ({ type, id, nowSeconds, email, options }, sign) => {
      const time = new Date(nowSeconds * 1000).toISOString()
      const [topic] = (options as z.infer<typeof optionsSchema>).topicArns // the provider was created with them
      const isOuter = SIGNED.has(type)
      const mail = { messageId: `ses-${id}`, source: 'billing@example.com', destination: [email] }
      const message: Record<string, string | undefined> = {
        Type: isOuter ? type : 'Notification',
        MessageId: id,
        TopicArn: topic,
        Message: isOuter ? `A sample ${type}` : JSON.stringify({ eventType: type, mail }),
        Timestamp: time,
        ...(isOuter &&
          type !== 'Notification' && { Token: 'sample', SubscribeURL: 'https://sns.eu-west-1.amazonaws.com/?sample' }),
      }
      const names = SIGNED.get(message.Type) ?? []
      const text = names.flatMap((name) => (message[name] === undefined ? [] : [`${name}\n${message[name]}\n`])).join('')
      return {
        headers: { 'content-type': 'text/plain; charset=UTF-8', 'x-amz-sns-message-type': message.Type ?? '' },
        body: JSON.stringify(
          { ...message, SignatureVersion: '2', Signature: sign(text), SigningCertURL: TEST_KEY },
          undefined,
          2,
        ),
      }
    },
  },
})
