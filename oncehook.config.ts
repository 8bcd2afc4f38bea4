import { defineConfig, env, key } from 'oncehook'

// The sample that npm start runs with. Copy it, keep what you need, and point ONCEHOOK_CONFIG at your copy.
export default defineConfig({
  inboxili: { account: 'exclusive' },
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
    {
      name: 'receipt',
      source: 'stripe',
      type: ['invoice.paid', 'invoice.payment_succeeded'],
      email: ({ data }) => ({
        key: key('invoice', data.object.id, 'paid'),
        to: data.object.customer_email,
        from_email: 'billing@example.com',
        subject: `Your receipt for invoice ${data.object.number ?? data.object.id}`,
        html_body: '<p>Thank you, we received your payment.</p>',
      }),
    },
    {
      name: 'refund',
      source: 'stripe',
      type: 'charge.refunded',
      email: ({ data }) =>
        data.object.billing_details?.email && {
          key: key('refund', data.object.id, data.object.amount_refunded),
          to: data.object.billing_details.email,
          from_email: 'billing@example.com',
          subject: 'Your refund is on its way',
          html_body: '<p>We have refunded your payment.</p>',
        },
    },
    {
      name: 'order confirmation',
      source: 'shop',
      type: 'order.paid',
      email: ({ order }) => ({
        key: key('order', order.id, 'paid'),
        to: order.email,
        from_email: 'shop@example.com',
        subject: `Order ${order.id} is paid`,
        html_body: '<p>Thank you for your order.</p>',
      }),
    },
    {
      name: 'sponsorship thanks',
      source: 'github',
      type: 'sponsorship.created',
      email: ({ sponsorship }) =>
        sponsorship.sponsor?.email && {
          key: key('sponsorship', sponsorship.node_id, 'created'),
          to: sponsorship.sponsor.email,
          from_email: 'hello@example.com',
          subject: 'Thank you for sponsoring us',
          html_body: '<p>You are keeping this project alive.</p>',
        },
    },
  ],
})
