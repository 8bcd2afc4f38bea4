import { defineConfig, env, key } from 'oncehook'

// Stripe reports one payment as several events (invoice.paid and invoice.payment_succeeded come together), so that no key is made
// of an event's ID. At Stripe choose the types that are named below.
export default defineConfig({
  sources: {
    stripe: { provider: 'stripe', secrets: env.list('STRIPE_WEBHOOK_SECRETS') },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'stripe',
      type: ['invoice.paid', 'invoice.payment_succeeded'],
      email: ({ data: { object: invoice } }) => ({
        key: key('invoice', invoice.id, 'paid'),
        to: invoice.customer_email,
        from_email: 'billing@example.com',
        subject: `Your receipt for invoice ${invoice.number ?? invoice.id}`,
        html_body: '<p>Thank you, we received your payment.</p>',
      }),
    },
    {
      name: 'payment failed',
      source: 'stripe',
      type: 'invoice.payment_failed',
      // One email for each attempt; without the count in the key the customer would hear of the first one only.
      email: ({ data: { object: invoice } }) => ({
        key: key('invoice', invoice.id, 'failed', invoice.attempt_count),
        to: invoice.customer_email,
        from_email: 'billing@example.com',
        subject: `We could not charge invoice ${invoice.number ?? invoice.id}`,
        html_body: `<p>Please check your card: <a href="${invoice.hosted_invoice_url}">pay the invoice</a>.</p>`,
      }),
    },
    {
      name: 'refund',
      source: 'stripe',
      type: 'charge.refunded',
      // A charge can be refunded in parts: what is refunded by now tells them apart.
      email: ({ data: { object: charge } }) =>
        charge.billing_details?.email && {
          key: key('charge', charge.id, 'refunded', charge.amount_refunded),
          to: charge.billing_details.email,
          from_email: 'billing@example.com',
          subject: 'Your refund is on its way',
          html_body: '<p>We have refunded your payment.</p>',
        },
    },
    {
      name: 'subscription ended',
      source: 'stripe',
      type: 'customer.subscription.deleted',
      // Stripe's subscription has no address: put it into the metadata when you make the subscription.
      email: ({ data: { object: subscription } }) => {
        const to = subscription.metadata?.email ?? subscription.customer_email
        return (
          to && {
            key: key('subscription', subscription.id, 'ended'),
            to,
            from_email: 'billing@example.com',
            subject: 'Your subscription has ended',
            html_body: '<p>We are sorry to see you go.</p>',
          }
        )
      },
    },
    {
      name: 'payout',
      source: 'stripe',
      type: 'payout.paid',
      email: ({ data: { object: payout } }) => ({
        key: key('payout', payout.id, 'paid'),
        to: 'accounting@example.com',
        from_email: 'billing@example.com',
        subject: `Stripe has paid out ${payout.id}`,
        html_body: '<p>The money is on its way to our account.</p>',
      }),
    },
  ],
})
