import { defineConfig, env, key } from 'oncehook'

// What the processes of the tests run with: every provider once, each with a rule that mails the customer of its samples.

interface Customer {
  email: string
  fact: string
}

/** In turn: Stripe, generic, GitHub, GoCardless, and the Standard Webhooks samples. */
// biome-ignore lint/suspicious/noExplicitAny: as in a user's own file
const customerOf = ({ data, order, links, resource_metadata: metadata, sponsorship }: Record<string, any>): Customer => ({
  email: data?.object?.customer_email ?? order?.email ?? sponsorship?.sponsor?.email ?? metadata?.email ?? data?.email,
  fact: data?.object?.id ?? order?.id ?? sponsorship?.node_id ?? links?.payment ?? data?.id,
})

const receipt = (source: string, type: string) => ({
  name: `${source} receipt`,
  source,
  type,
  // biome-ignore lint/suspicious/noExplicitAny: as in a user's own file
  email: async (payload: Record<string, any>) => {
    const { email, fact } = customerOf(payload)
    // A rule may fetch what it needs; this one waits for whoever runs the test.
    if (email.startsWith('slow-')) await fetch(`${process.env.TEST_RULE_URL}/${email}`)
    return {
      key: key(source, fact, 'paid'),
      to: email,
      from_email: 'billing@example.com',
      subject: 'Your receipt',
      html_body: '<p>Thank you</p>',
    }
  },
})

export default defineConfig({
  sources: {
    stripe: { provider: 'stripe', secrets: env.list('STRIPE_WEBHOOK_SECRETS') },
    gocardless: { provider: 'gocardless', secrets: env.list('GOCARDLESS_WEBHOOK_SECRETS') },
    github: { provider: 'github', secrets: env.list('GITHUB_WEBHOOK_SECRETS') },
    svix: { provider: 'svix', secrets: env.list('SVIX_WEBHOOK_SECRETS') },
    acme: { provider: 'standard-webhooks', secrets: env.list('ACME_WEBHOOK_SECRETS') },
    shop: {
      provider: 'generic',
      secrets: env.list('SHOP_WEBHOOK_SECRETS'),
      header: 'x-shop-signature',
      prefix: 'sha256=',
      algorithm: 'sha256',
      encoding: 'hex',
      id: 'id',
      type: 'type',
    },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    receipt('stripe', 'invoice.paid'),
    receipt('gocardless', 'payments.confirmed'),
    receipt('github', 'sponsorship.created'),
    receipt('svix', 'order.paid'),
    receipt('acme', 'order.paid'),
    receipt('shop', 'order.paid'),
  ],
})
