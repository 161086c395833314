import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/** Serves Apache Iceberg's own REST catalog of its tests on loopback: PORT, the JDBC address of its database, the warehouse, NAME=VALUE... */
final class IcebergRest {
  public static void main(String[] arguments) throws Exception {
    var catalog = new JdbcCatalog();
    catalog.setConf(new Configuration());
    var properties = new HashMap<>(Map.of("uri", arguments[1], "warehouse", arguments[2], "jdbc.schema-version", "V1"));
    for (var more : Arrays.copyOfRange(arguments, 3, arguments.length)) {
      var parts = more.split("=", 2);
      properties.put(parts[0], parts[1]);
    }
    catalog.initialize("rest", properties);
    var context = new ServletContextHandler();
    context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    var server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
    server.setHandler(context);
    server.start();
    server.join();
  }
}
