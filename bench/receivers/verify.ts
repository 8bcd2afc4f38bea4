import { createHmac, timingSafeEqual } from 'node:crypto'

/** Checks a Stripe signature as a careful receiver would by hand: over the raw bytes, in constant time, not too old. */
export function isSignedByStripe(header: unknown, body: Buffer, secret: string): boolean {
  const found = typeof header === 'string' ? /^t=(\d{1,12}),v1=([0-9a-f]{64})$/.exec(header) : null
  if (!found) return false
  const [, time = '', given = ''] = found
  if (Math.abs(Date.now() / 1000 - Number(time)) > 300) return false
  const expected = createHmac('sha256', secret).update(`${time}.`).update(body).digest()
  return timingSafeEqual(Buffer.from(given, 'hex'), expected)
}
